# SPDX-License-Identifier: Apache-2.0
"""Kunlun XPUs as an out-of-tree platform of vLLM. Not yet run on hardware.

What is known of the vendor's software was read in public sources and never tried here;
docs/kunlun.md says what is known and from where.
"""
