// SPDX-License-Identifier: Apache-2.0
// The XPU's language for a C++11 compiler. Pointers and arrays are classes, so that
// every load, store and copy of a kernel passes the machine's checks; the place in the
// source comes with it, since a default argument is evaluated where it is left out.
#ifndef VLLM_KUNLUN_XPU_SIM_LANGUAGE_H_
#define VLLM_KUNLUN_XPU_SIM_LANGUAGE_H_

#include "xpu/sim/checks.h"

#define __global__
#define __device__
#define __shared__

#define VLLM_KUNLUN_SIM_HERE \
  const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace vllm_kunlun {
namespace sim {

// An index of 32 bits, and where it was written. Wider ones do not compile: arithmetic
// on them is slow on the XPU.
struct Index {
  int value;
  Place place;

  Index(int i, VLLM_KUNLUN_SIM_HERE) : value(i), place{file, line} {}
  Index(unsigned i, VLLM_KUNLUN_SIM_HERE)
      : value(static_cast<int>(i)), place{file, line} {}
  Index(long) = delete;
  Index(long long) = delete;
  Index(unsigned long) = delete;
  Index(unsigned long long) = delete;
};

// What p[i] is where it can be assigned to.
template <class T>
class Element {
 public:
  Element(T* p, const Span* span, const Place& place)
      : p_(p), span_(span), place_(place) {}

  Element(const Element&) = default;

  operator T() const {
    check_read(span_, p_, sizeof(T), place_);
    return *p_;
  }
  const Element& operator=(T value) const {
    check_write(span_, p_, sizeof(T), place_);
    *p_ = value;
    return *this;
  }
  const Element& operator=(const Element& other) const {
    return *this = static_cast<T>(other);
  }
  const Element& operator+=(T value) const { return *this = T(*this) + value; }
  const Element& operator-=(T value) const { return *this = T(*this) - value; }
  const Element& operator|=(T value) const { return *this = T(*this) | value; }

 private:
  T* p_;
  const Span* span_;
  Place place_;
};

template <class T>
struct ElementOf {
  typedef Element<T> Type;
};
template <class T>
struct ElementOf<const T> {
  typedef T Type;
};

// A pointer into a span of one kind of memory. It cannot leave its span: another
// argument that happens to lie behind is out of its range.
template <class T, Space kSpace>
class Pointer {
 public:
  Pointer() : p_(nullptr), span_(nullptr) {}
  Pointer(T* p, const Span* span) : p_(p), span_(span) {}
  operator Pointer<const T, kSpace>() const {
    return Pointer<const T, kSpace>(p_, span_);
  }

  typename ElementOf<T>::Type operator[](const Index& i) const {
    return typename ElementOf<T>::Type(Element<T>(p_ + i.value, span_, i.place));
  }
  Pointer operator+(long long n) const { return Pointer(p_ + n, span_); }
  bool operator==(decltype(nullptr)) const { return p_ == nullptr; }
  bool operator!=(decltype(nullptr)) const { return p_ != nullptr; }

  T* raw() const { return p_; }
  const Span* span() const { return span_; }

 private:
  T* p_;
  const Span* span_;
};

// Its object is the array: memory of the core is taken and given back with it.
template <class T, int kSize>
class LocalArray : public LocalSpan, public Pointer<T, kLocal> {
 public:
  explicit LocalArray(VLLM_KUNLUN_SIM_HERE)
      : LocalSpan(sizeof(T) * kSize, sizeof(T), Place{file, line}),
        Pointer<T, kLocal>(static_cast<T*>(LocalSpan::begin()), LocalSpan::get()) {}
};

// Every core has an object, and all of a cluster's have one memory.
template <class T, int kSize>
class SharedArray : public Pointer<T, kShared> {
 public:
  explicit SharedArray(VLLM_KUNLUN_SIM_HERE)
      : SharedArray(shared_span(sizeof(T) * kSize, sizeof(T), Place{file, line})) {}

 private:
  explicit SharedArray(const Span* span)
      : Pointer<T, kShared>(static_cast<T*>(begin_of(span)), span) {}
};

}  // namespace sim

namespace xpu {

template <class T>
using Gm = sim::Pointer<T, sim::kGlobal>;
template <class T>
using GmParam = Gm<T>;
template <class T>
Gm<T> global_at(unsigned long long address) {
  T* p = reinterpret_cast<T*>(address);
  return Gm<T>(p, sim::span_at(p));
}
template <class T>
using Lm = sim::Pointer<T, sim::kLocal>;
template <class T, int kSize>
using LmArray = sim::LocalArray<T, kSize>;
template <class T, int kSize>
using SmArray = sim::SharedArray<T, kSize>;

}  // namespace xpu
}  // namespace vllm_kunlun

inline int core_id() { return vllm_kunlun::sim::ids().core; }
inline int core_num() { return vllm_kunlun::sim::ids().cores; }
inline int cluster_id() { return vllm_kunlun::sim::ids().cluster; }
inline int cluster_num() { return vllm_kunlun::sim::ids().clusters; }

// A copy and its asynchronous form, from one kind of memory to another.
#define VLLM_KUNLUN_SIM_COPY(name, from, to)                                          \
  template <class T, class U>                                                         \
  void name(const vllm_kunlun::sim::Pointer<T, vllm_kunlun::sim::from>& src,          \
            const vllm_kunlun::sim::Pointer<U, vllm_kunlun::sim::to>& dst, int bytes, \
            VLLM_KUNLUN_SIM_HERE) {                                                   \
    vllm_kunlun::sim::copy(src.span(), src.raw(), dst.span(), dst.raw(), bytes,       \
                           vllm_kunlun::sim::Place{file, line});                      \
  }                                                                                   \
  template <class T, class U>                                                         \
  void name##_ASYNC(const vllm_kunlun::sim::Pointer<T, vllm_kunlun::sim::from>& src,  \
                    const vllm_kunlun::sim::Pointer<U, vllm_kunlun::sim::to>& dst,    \
                    int bytes, VLLM_KUNLUN_SIM_HERE) {                                \
    vllm_kunlun::sim::copy_later(src.span(), src.raw(), dst.span(), dst.raw(), bytes, \
                                 vllm_kunlun::sim::Place{file, line});                \
  }
VLLM_KUNLUN_SIM_COPY(GM2LM, kGlobal, kLocal)
VLLM_KUNLUN_SIM_COPY(LM2GM, kLocal, kGlobal)
VLLM_KUNLUN_SIM_COPY(GM2SM, kGlobal, kShared)
VLLM_KUNLUN_SIM_COPY(SM2GM, kShared, kGlobal)
#undef VLLM_KUNLUN_SIM_COPY

inline void mfence() { vllm_kunlun::sim::fence(true, true, true); }
inline void mfence_lm() { vllm_kunlun::sim::fence(false, true, false); }
inline void mfence_sm() { vllm_kunlun::sim::fence(false, false, true); }
inline void mfence_lm_sm() { vllm_kunlun::sim::fence(false, true, true); }

inline void sync_cluster(VLLM_KUNLUN_SIM_HERE) {
  vllm_kunlun::sim::barrier(vllm_kunlun::sim::Place{file, line});
}
inline void sync_all(VLLM_KUNLUN_SIM_HERE) {
  vllm_kunlun::sim::barrier(vllm_kunlun::sim::Place{file, line});
}

#endif  // VLLM_KUNLUN_XPU_SIM_LANGUAGE_H_
