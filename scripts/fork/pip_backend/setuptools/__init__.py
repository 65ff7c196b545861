# SPDX-License-Identifier: Apache-2.0
"""Stands in for setuptools while pip downloads an sdist (see build_meta)."""
