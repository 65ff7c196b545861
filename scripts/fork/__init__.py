# SPDX-License-Identifier: Apache-2.0
"""Tools that keep this fork: fetch upstream, apply and export the patch series."""
