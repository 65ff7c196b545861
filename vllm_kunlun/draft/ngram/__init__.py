# SPDX-License-Identifier: Apache-2.0
"""DSpark without a draft model: drafts from a request's own tokens."""
