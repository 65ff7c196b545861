# SPDX-License-Identifier: Apache-2.0
"""DSpark with a draft checkpoint: what the switches change of upstream's drafter."""
