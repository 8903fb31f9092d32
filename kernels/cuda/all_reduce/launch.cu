#include "kernel.cuh"

namespace all_reduce {

using common::data;
using common::DeviceGuard;
using common::stream_of;
using tvm::ffi::TensorView;

int64_t bytes_of(const TensorView& x) {
  int64_t elements = 1;
  for (int i = 0; i < x.ndim(); ++i) elements *= x.size(i);
  return elements * x.dtype().bits / 8;
}

Sum sum_of(TensorView x, TensorView inboxes, TensorView calls, int64_t slot_bytes, int64_t rank, int64_t longest_wait, int64_t ctas) {
  const int64_t bytes = bytes_of(x);
  if (bytes % 16 != 0 || 2 * bytes > slot_bytes || ctas > calls.size(0))
    TVM_FFI_THROW(ValueError) << "x has " << bytes << " bytes; expected a multiple of 16, at most " << slot_bytes / 2;
  Sum p = {};
  p.x = data<uint4>(x);
  p.inboxes = data<int64_t>(inboxes);
  p.calls = data<uint32_t>(calls);
  p.slot_bytes = slot_bytes;
  p.longest_wait = static_cast<uint64_t>(longest_wait);
  p.pieces = static_cast<int>(bytes / 16);
  p.rank = static_cast<int>(rank);
  p.size = static_cast<int>(inboxes.size(0));
  return p;
}

// x and out of one shape in bf16 or fp32, contiguous and a multiple of 16 bytes; inboxes int64 [size], the addresses of all ranks' inboxes of
// [size, 2, slot_bytes] bytes each; calls int32, one for every 4096 bytes of x. slot_bytes is at least twice the bytes of x. All ranks call it
// with the same shapes, in the same order. A rank that waits for another one for more than longest_wait nanoseconds ends with an error.
void all_reduce(TensorView x, TensorView out, TensorView inboxes, TensorView calls, int64_t slot_bytes, int64_t rank,
                int64_t longest_wait) {
  DeviceGuard guard(x);
  const int64_t ctas = (bytes_of(x) / 16 + kThreads - 1) / kThreads;
  Sum p = sum_of(x, inboxes, calls, slot_bytes, rank, longest_wait, ctas);
  p.out = data<uint4>(out);
  const auto kernel = x.dtype().code == kDLBfloat ? all_reduce_kernel<__nv_bfloat16> : all_reduce_kernel<float>;
  common::launch_pdl(kernel, dim3(static_cast<unsigned>(ctas)), kThreads, 0, stream_of(x), p);
}

// The sum of x bf16 [T, D], plus residual [T, D], normed with weight fp32 [D] -> total, normed [T, D], codes e4m3 (as bytes) [T, D], scales
// fp32 [T, D / 128]. D is a multiple of 512 up to 8192 and the same in all calls with these inboxes and calls int32, one for each token; all
// rows start on 16-byte boundaries.
void all_reduce_norm(TensorView x, TensorView inboxes, TensorView calls, int64_t slot_bytes, int64_t rank, int64_t longest_wait,
                     TensorView residual, TensorView weight, TensorView total, TensorView normed, TensorView codes, TensorView scales,
                     double eps, bool ue8m0, bool static_gain) {
  DeviceGuard guard(x);
  const SummedNorm p = {sum_of(x, inboxes, calls, slot_bytes, rank, longest_wait, x.size(0)),
                        common::normed_rows_of(residual, weight, total, normed, codes, scales, eps, ue8m0, static_gain)};
  common::launch_pdl(all_reduce_norm_kernel, dim3(static_cast<unsigned>(x.size(0))), p.rows.width / common::kHeldOfGroup, 0, stream_of(x), p);
}

}  // namespace all_reduce

TVM_FFI_DLL_EXPORT_TYPED_FUNC(all_reduce, all_reduce::all_reduce);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(all_reduce_norm, all_reduce::all_reduce_norm);
