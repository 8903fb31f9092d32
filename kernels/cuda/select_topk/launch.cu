#include "kernel.cuh"

namespace topk {

constexpr int kLeastPart = 4096;  // elements per CTA below which a larger cluster costs more than it saves

// Launches one CTA for each row if a row fits into its registers; returns whether it does. early: before the previous kernel has ended.
template <int kThreads, int kVectors, int kCtas>
bool launch_short(const Problem& problem, int rows, cudaStream_t stream, bool early) {
  const bool aligned = reinterpret_cast<uintptr_t>(problem.logits) % 16 == 0 && problem.row_stride % 4 == 0;
  if (problem.columns + (aligned ? 0 : 3) > 4 * kThreads * kVectors) return false;
  common::launch_kernel(select_short_kernel<kThreads, kVectors, kCtas>, {dim3(rows), kThreads, 0, stream, 1, early}, problem);
  return true;
}

template <class Kernel>
void launch(Kernel kernel, const Problem& problem, int rows, int parts, cudaStream_t stream, bool early) {
  if (parts > 8) check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "cluster size");
  const size_t shared = shared_bytes(problem.capacity, problem.columns);
  common::launch_kernel(kernel, {dim3(rows * parts), kThreads, shared, stream, parts, early}, problem);
}

// logits fp32 [T, S], starts (none: zeros) and ends int32 [T] -> out int32 [T, K]: positions relative to starts, or cache slots if there is
// a block_table int32 [T, pages]. record, only without starts: int32 [T, 2, K], the positions and the bits of their logits.
// early: the previous kernel has not written starts, ends and the block table, so that this one may start before it ends (pdl.cuh).
void select_topk(TensorView logits, Optional<TensorView> starts, TensorView ends, TensorView out, Optional<TensorView> block_table,
                 int64_t page_size, Optional<TensorView> record, bool early) {
  common::DeviceGuard guard(logits);
  Problem p = {};
  p.logits = data<float>(logits);
  p.row_stride = logits.stride(0);
  p.starts = data<int32_t>(starts);
  p.ends = data<int32_t>(ends);
  p.block_table = data<int32_t>(block_table);
  if (block_table.has_value()) p.table_stride = block_table.value().stride(0);
  p.page_size = static_cast<int>(page_size);
  p.page_shift = -1;
  for (int shift = 0; shift < 31; ++shift)
    if (page_size == int64_t(1) << shift) p.page_shift = shift;
  p.out = data<int32_t>(out);
  p.record = data<int32_t>(record);
  if (record.has_value()) p.record_stride = record.value().stride(0);
  p.columns = static_cast<int>(logits.size(1));
  p.k = static_cast<int>(out.size(1));
  const int rows = static_cast<int>(logits.size(0)), multiprocessors = common::multiprocessors(logits);
  const cudaStream_t stream = common::stream_of(logits);
  // With a row for each multiprocessor, most threads are fastest; with more rows, three CTAs there, which fill in for each other.
  const bool launched = rows <= multiprocessors
                            ? launch_short<1024, 1, 1>(p, rows, stream, early) || launch_short<1024, 2, 1>(p, rows, stream, early) ||
                                  launch_short<1024, 4, 1>(p, rows, stream, early)
                            : launch_short<512, 2, 3>(p, rows, stream, early) || launch_short<512, 4, 3>(p, rows, stream, early);
  if (launched) return;
  // Two CTAs fit wherever multiprocessors are free. Larger clusters leave some free, because the number of multiprocessors of a GPC is
  // seldom a multiple of theirs.
  int parts = 1;
  while (parts < 16 && p.columns >= 2 * parts * kLeastPart &&
         2 * parts * rows <= (parts == 1 ? multiprocessors : multiprocessors * 3 / 4))
    parts *= 2;
  p.capacity = rows * parts <= multiprocessors ? 8192 : 6144;
  if (rows * parts <= multiprocessors && p.columns <= parts * kThreads * 16)  // a part is at most one tile
    launch(select_topk_kernel<1, 4>, p, rows, parts, stream, early);
  else if (rows * parts <= multiprocessors)
    launch(select_topk_kernel<1, 8>, p, rows, parts, stream, early);
  else
    launch(select_topk_kernel<2, 4>, p, rows, parts, stream, early);
}

}  // namespace topk

TVM_FFI_DLL_EXPORT_TYPED_FUNC(select_topk, topk::select_topk);
