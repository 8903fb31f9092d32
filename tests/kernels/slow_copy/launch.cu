// A kernel that lets the next one start at once, and writes only some time later: what the tests of early starts put before a kernel.
#include "../../../kernels/cuda/common/pdl.cuh"

namespace {

using tvm::ffi::TensorView;

constexpr int kThreads = 256;  // of one CTA, so that the next kernel finds room on every multiprocessor

__device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void __launch_bounds__(kThreads) slow_copy_kernel(uint4* to, const uint4* from, int64_t pieces, int64_t delay) {
  common::pdl_launch_dependents();
  common::pdl_wait();
  for (const uint64_t began = nanoseconds(); nanoseconds() - began < static_cast<uint64_t>(delay);) __nanosleep(500);
  for (int64_t i = threadIdx.x; i < pieces; i += kThreads) to[i] = from[i];
}

// from uint8 [N] -> to uint8 [N] after `delay` nanoseconds; N is a multiple of 16.
void slow_copy(TensorView to, TensorView from, int64_t delay) {
  common::DeviceGuard guard(to);
  const uint4* source = common::data<uint4>(from);
  common::launch_pdl(slow_copy_kernel, dim3(1), kThreads, 0, common::stream_of(to), common::data<uint4>(to), source, to.size(0) / 16,
                     delay);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(slow_copy, slow_copy);
