# SPDX-License-Identifier: Apache-2.0
"""The stages of a V2 step in their fused form, each behind its switch."""
