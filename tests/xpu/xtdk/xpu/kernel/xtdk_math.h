// SPDX-License-Identifier: Apache-2.0
// Our kernels have their own elementary functions.
