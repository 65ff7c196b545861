// SPDX-License-Identifier: Apache-2.0
// The names of the XPU's own compiler that our kernels use, for a compiler that has
// none of them: enough to see that the kernels are sound where pointers are pointers.
#ifndef VLLM_KUNLUN_TESTS_XPU_XTDK_H_
#define VLLM_KUNLUN_TESTS_XPU_XTDK_H_

#define __global__
#define __device__
#define __shared__
#define __global_ptr__

int core_id();
int core_num();
int cluster_id();
int cluster_num();

void GM2LM(const void* src, void* dst, int bytes);
void LM2GM(const void* src, void* dst, int bytes);
void GM2LM_ASYNC(const void* src, void* dst, int bytes);
void LM2GM_ASYNC(const void* src, void* dst, int bytes);

void mfence();
void mfence_lm();
void mfence_sm();
void sync_cluster();

#endif  // VLLM_KUNLUN_TESTS_XPU_XTDK_H_
