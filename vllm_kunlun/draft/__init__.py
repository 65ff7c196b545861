# SPDX-License-Identifier: Apache-2.0
"""Drafts for speculative decoding."""
