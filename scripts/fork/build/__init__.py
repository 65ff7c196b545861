# SPDX-License-Identifier: Apache-2.0
"""From a bare machine to two installed wheels: scripts/apply_and_build.sh.

`bootstrap` runs with the Python that was found and needs nothing but the standard
library; it makes the environment, in which `pipeline` does the rest.
"""
