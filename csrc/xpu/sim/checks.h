// SPDX-License-Identifier: Apache-2.0
// What the language's classes ask of the simulated machine. C++11, as kernels are.
#ifndef VLLM_KUNLUN_XPU_SIM_CHECKS_H_
#define VLLM_KUNLUN_XPU_SIM_CHECKS_H_

namespace vllm_kunlun {
namespace sim {

// A place in a kernel's source.
struct Place {
  const char* file;
  int line;
};

enum Space { kGlobal, kLocal, kShared };

// Memory that one argument of a launch or one array stands for.
struct Span;

void* begin_of(const Span* span);

// The argument of the launch that has this address; null where none has.
const Span* span_at(const void* p);

// Each reports a fault, by an exception, that ends the launch. `bytes` is the size of
// one element.
void check_read(const Span* span, const void* p, int bytes, const Place& place);
void check_write(const Span* span, const void* p, int bytes, const Place& place);
void copy(const Span* from, const void* src, const Span* to, void* dst, int bytes,
          const Place& place);
// The same at the next fence for local or shared memory, whichever takes part.
void copy_later(const Span* from, const void* src, const Span* to, void* dst, int bytes,
                const Place& place);
void fence(bool global, bool local, bool shared);
void barrier(const Place& place);

// Memory of the running core for the time that the object lives.
class LocalSpan {
 public:
  LocalSpan(int bytes, int element, const Place& place);
  ~LocalSpan();
  LocalSpan(const LocalSpan&) = delete;
  LocalSpan& operator=(const LocalSpan&) = delete;

  const Span* get() const { return span_; }
  void* begin() const { return begin_of(span_); }

 private:
  const Span* span_;
};

// The cluster's array that is declared at `place`.
const Span* shared_span(int bytes, int element, const Place& place);

// Who is running.
struct Ids {
  int core;
  int cores;
  int cluster;
  int clusters;
};
const Ids& ids();

}  // namespace sim
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_SIM_CHECKS_H_
