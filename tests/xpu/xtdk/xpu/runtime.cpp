// SPDX-License-Identifier: Apache-2.0
// A machine of one core, whose memories are one: enough to link what was compiled for
// the XPU with plain pointers.
#include <cstring>

#include "xpu/kernel/xtdk.h"

int core_id() { return 0; }
int core_num() { return 1; }
int cluster_id() { return 0; }
int cluster_num() { return 1; }

void GM2LM(const void* src, void* dst, int bytes) { std::memcpy(dst, src, bytes); }
void LM2GM(const void* src, void* dst, int bytes) { std::memcpy(dst, src, bytes); }
void GM2LM_ASYNC(const void* src, void* dst, int bytes) { GM2LM(src, dst, bytes); }
void LM2GM_ASYNC(const void* src, void* dst, int bytes) { LM2GM(src, dst, bytes); }

void mfence() {}
void mfence_lm() {}
void mfence_sm() {}
void sync_cluster() {}
