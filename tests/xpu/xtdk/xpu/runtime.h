// SPDX-License-Identifier: Apache-2.0
// What our wrappers use of the XPU's runtime.
#ifndef VLLM_KUNLUN_TESTS_XPU_RUNTIME_H_
#define VLLM_KUNLUN_TESTS_XPU_RUNTIME_H_

typedef void* XPUStream;

#endif  // VLLM_KUNLUN_TESTS_XPU_RUNTIME_H_
