#include "kernel.cuh"

namespace all_reduce {

using common::data;
using common::DeviceGuard;
using common::stream_of;
using tvm::ffi::TensorView;

// x and out of one shape in bf16 or fp32, contiguous and a multiple of 16 bytes; inboxes int64 [size], the addresses of all ranks' inboxes of
// [size, 2, slot_bytes] bytes each; calls int32, one for every 4096 bytes of x. slot_bytes is at least twice the bytes of x. All ranks call it
// with the same shapes, in the same order.
void all_reduce(TensorView x, TensorView out, TensorView inboxes, TensorView calls, int64_t slot_bytes, int64_t rank) {
  DeviceGuard guard(x);
  int64_t elements = 1;
  for (int i = 0; i < x.ndim(); ++i) elements *= x.size(i);
  const int64_t bytes = elements * x.dtype().bits / 8;
  Sum p = {};
  p.x = data<uint4>(x);
  p.out = data<uint4>(out);
  p.inboxes = data<int64_t>(inboxes);
  p.calls = data<uint32_t>(calls);
  p.slot_bytes = slot_bytes;
  p.pieces = static_cast<int>(bytes / 16);
  p.rank = static_cast<int>(rank);
  p.size = static_cast<int>(inboxes.size(0));
  const int64_t ctas = (p.pieces + kThreads - 1) / kThreads;
  if (bytes % 16 != 0 || 2 * bytes > slot_bytes || ctas > calls.size(0))
    TVM_FFI_THROW(ValueError) << "x has " << bytes << " bytes; expected a multiple of 16, at most " << slot_bytes / 2;
  const auto kernel = x.dtype().code == kDLBfloat ? all_reduce_kernel<__nv_bfloat16> : all_reduce_kernel<float>;
  common::launch_pdl(kernel, dim3(static_cast<unsigned>(ctas)), kThreads, 0, stream_of(x), p);
}

}  // namespace all_reduce

TVM_FFI_DLL_EXPORT_TYPED_FUNC(all_reduce, all_reduce::all_reduce);
