#include "../attention/launch.cuh"
#include "values.cuh"

namespace mla {

template <class Tile>
void launch_values(const Problem& p, const Scratch& scratch, cudaStream_t stream) {
  const dim3 grid(kValueWidth / Tile::kColumns, (p.rows + Tile::kTileRows - 1) / Tile::kTileRows, p.queries);
  const size_t bytes = sizeof(ValueMemory<Tile>) + scratch.width * sizeof(uint32_t);
  launch_kernel(flash_fwd_splitkv_mla_fp8_sparse_kernel_few_queries<Tile>, {grid, Tile::kThreads, bytes, stream, 1, true}, p, scratch);
}

// q [N, H, 576], cache uint8 [P, page, 1, 656], indices [N, K], topk_length [N], sink [H]; out [N, H, 512], lse [N, H]; scratch fp32:
// scores [N, K' / 16, H, 16] and maxima [N, H, K' / 16], with K' = K rounded up to a multiple of 64. A CTA computes outputs of `tile_rows` x
// `tile_columns`, by chunks of `chunk` keys.
void sparse_few_queries(TensorView q, TensorView cache, TensorView indices, Optional<TensorView> topk_length, Optional<TensorView> sink,
                        TensorView out, TensorView lse, double scale, TensorView scores, TensorView maxima,
                        int64_t tile_rows, int64_t tile_columns, int64_t chunk) {
  DeviceGuard guard(q);
  if (scores.size(1) > kMostBlocks * kBlock / kQuadColumns)
    TVM_FFI_THROW(ValueError) << "indices has " << indices.size(1) << " columns; expected at most " << kMostBlocks * kBlock;
  if (exceeds_64_gib(cache))
    TVM_FFI_THROW(ValueError) << "cache is " << cache.size(0) << " pages of stride " << cache.stride(0)
                              << "; expected less than 64 GiB in all";
  Problem p = sparse_problem(q, indices, topk_length, 1, sink, out, lse, scale);
  read_cache(p.keys, cache);
  const Scratch scratch = {data<float>(scores), data<float>(maxima), static_cast<int>(scores.size(1)) * kQuadColumns};
  const cudaStream_t stream = stream_of(q);
  const dim3 grid(scratch.width / kScoreKeys, (p.rows + kRows - 1) / kRows, p.queries);
  const int cluster = p.queries == 1 && grid.x % 4 == 0 ? 4 : 2;  // small clusters find room earlier, large ones read queries once
  launch_kernel(cluster == 4 ? few_queries_scores_kernel<4> : few_queries_scores_kernel<2>,
                {grid, kScoreThreads, sizeof(ScoreMemory), stream, cluster, true}, p, scratch);
  switch (tile_rows * 1'000'000 + tile_columns * 10'000 + chunk) {
    case 16'320'256: return launch_values<ValueTile<16, 32, 256>>(p, scratch, stream);
    case 16'640'256: return launch_values<ValueTile<16, 64, 256>>(p, scratch, stream);
    case 32'640'128: return launch_values<ValueTile<32, 64, 128>>(p, scratch, stream);
  }
  TVM_FFI_THROW(ValueError) << "tile is " << tile_rows << " x " << tile_columns << " of " << chunk
                            << "; expected 16 x 32 or 16 x 64 of 256, or 32 x 64 of 128";
}

}  // namespace mla

TVM_FFI_DLL_EXPORT_TYPED_FUNC(sparse_few_queries, mla::sparse_few_queries);
