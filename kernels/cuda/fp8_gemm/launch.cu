#include <initializer_list>

#include "../common/tensor_map.cuh"
#include "swap_ab.cuh"
#include "large_m.cuh"

namespace gemm {

namespace {

// Tensor map of bytes [experts, rows, k] under the 128-byte swizzle, in boxes of 128 columns. Elements outside read as zero.
CUtensorMap map_of(const TensorView& tensor, int box_rows) {
  const int rank = tensor.ndim();
  cuuint64_t sizes[3], strides[2];
  for (int i = 0; i < rank; ++i) sizes[i] = static_cast<cuuint64_t>(tensor.size(rank - 1 - i));
  for (int i = 0; i + 1 < rank; ++i) strides[i] = static_cast<cuuint64_t>(tensor.stride(rank - 2 - i));
  const cuuint32_t box[3] = {kSlice, static_cast<cuuint32_t>(box_rows), 1};
  return encode_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, rank, data<void>(tensor), sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
}

Product product_of(const TensorView& a, const TensorView& a_scale, const TensorView& b, const TensorView& b_scale,
                   const Optional<TensorView>& offsets, const Optional<TensorView>& slots, const Optional<TensorView>& sorted_token_ids,
                   const TensorView& out) {
  Product p = {};
  p.a_scale = data<float>(a_scale);
  p.a_scale_stride = a_scale.stride(0);
  p.b_scale = data<float>(b_scale);
  p.b_scale_expert_stride = b_scale.stride(0);
  p.b_scale_stride = b_scale.stride(1);
  p.offsets = data<int32_t>(offsets);
  p.slots = data<int32_t>(slots);
  p.sorted_token_ids = data<int32_t>(sorted_token_ids);
  p.out = data<void>(out);
  p.rows = static_cast<int>(out.size(0));
  p.n = static_cast<int>(b.size(1));
  p.slices = static_cast<int>((a.size(1) + kSlice - 1) / kSlice);
  p.experts = static_cast<int>(offsets.has_value() ? offsets.value().size(0) - 1 : b.size(0));
  return p;
}

// The number of parts of K (split-K) for `tiles` tiles and room for `slots` CTAs, two on a multiprocessor. Few tiles are split until they
// occupy a fifth of the slots. Where K is long they are split further, as long as all parts run at once. More tiles than slots are split
// only if the last of two waves would leave most of the GPU idle.
int choose_splits(int64_t tiles, int slices, int64_t slots) {
  if (tiles > slots) return slices >= 32 && 2 * tiles < 3 * slots ? 2 : 1;
  if (tiles >= 16 && tiles * 3 <= slots / 2 && slices >= 24) return 3;  // one CTA on a multiprocessor; with four, none would be free
  int splits = 1;
  while (splits < 8 && tiles * splits * 2 <= slots && slices >= (tiles * splits < slots / 5 ? 8 : 33) * splits) splits *= 2;
  return splits;
}

// The operands of one product of a swap-AB launch. `expected_tiles`: how many token tiles will hold any token, since an expert may have
// none; 0: all.
struct Operands {
  const TensorView &a, &a_scale, &b, &b_scale;
  const Optional<TensorView>&offsets, &slots, &sorted_token_ids;
  const TensorView& out;
  int64_t expected_tiles;
};

template <int kTokens, class Out>
void run_swap_ab(std::initializer_list<Operands> products, int splits, bool static_weights, bool beside_previous,
                 cudaStream_t stream) {
  using Config = SwapAB<kTokens>;
  Jobs jobs = {};
  int64_t clusters = 0, expected_tiles = 0;
  bool grouped = false;
  int slices = 0, number = 0;
  for (const Operands& each : products) {
    Job& job = jobs.job[number++];
    job.product = product_of(each.a, each.a_scale, each.b, each.b_scale, each.offsets, each.slots, each.sorted_token_ids, each.out);
    const Product& p = job.product;
    const bool gathers = p.sorted_token_ids != nullptr;
    if (gathers && kTokens > 32) TVM_FFI_THROW(ValueError) << "tokens is " << kTokens << "; expected at most 32 with sorted_token_ids";
    job.a_map = map_of(each.a, gathers ? 1 : kTokens);
    job.b_map = map_of(each.b, kWeights);
    job.tiles = (p.n + kWeights - 1) / kWeights;
    // The largest possible number of token tiles: each expert that has any row may have one tile that is not full.
    const int token_tiles = p.offsets == nullptr ? (p.rows + kTokens - 1) / kTokens : std::min(p.rows, p.rows / kTokens + p.experts);
    job.clusters = job.tiles * token_tiles;
    clusters += job.clusters;
    expected_tiles += job.tiles * (each.expected_tiles > 0 ? std::min<int64_t>(each.expected_tiles, token_tiles) : token_tiles);
    slices = std::max(slices, p.slices);
    grouped |= p.offsets != nullptr;
  }
  const int64_t slots = int64_t(common::multiprocessors(products.begin()->a)) * 2;
  // A fixed number of parts asks for one order of summation, whatever the rows. Tiles of different experts read different tokens anyway.
  const bool ascending = splits > 0 || grouped;
  if (splits == 0) splits = choose_splits(expected_tiles, slices, slots);
  // A CTA that has a multiprocessor to itself may use all of its shared memory. For experts the number of CTAs is not known here.
  const bool single = !grouped && expected_tiles * splits <= slots / 2;
  const int shared = (Config::kCtas == 1 || single ? 227 : 113) * 1024;
  const int stages = Config::stages(slices, splits, shared);
  if (stages < 2) TVM_FFI_THROW(ValueError) << "K is " << slices * kSlice << "; expected a K whose scales fit into shared memory";
  const dim3 grid(static_cast<unsigned>(clusters * splits));
  launch_kernel(swap_ab_kernel<kTokens, Out>, {grid, Config::kThreads, static_cast<size_t>(shared), stream, splits, true}, jobs, splits,
                stages, static_weights, ascending, beside_previous);
}

void run_swap_ab(int64_t tokens, std::initializer_list<Operands> products, int64_t splits, bool static_weights, bool beside_previous) {
  const TensorView& out = products.begin()->out;
  DeviceGuard guard(out);
  const auto run = [&](auto tile) {
    constexpr int kTokens = decltype(tile)::value;
    const auto of_type = out.dtype().code == kDLBfloat ? run_swap_ab<kTokens, __nv_bfloat16> : run_swap_ab<kTokens, float>;
    of_type(products, static_cast<int>(splits), static_weights, beside_previous, stream_of(out));
  };
  switch (tokens) {
    case 8: return run(std::integral_constant<int, 8>());
    case 16: return run(std::integral_constant<int, 16>());
    case 32: return run(std::integral_constant<int, 32>());
    case 64: return run(std::integral_constant<int, 64>());
    case 128: return run(std::integral_constant<int, 128>());
  }
  TVM_FFI_THROW(ValueError) << "tokens is " << tokens << "; expected 8, 16, 32, 64 or 128";
}

// Tensor map of results [rows, n] in boxes of 16 rows.
CUtensorMap out_map_of(const Product& p, int box) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(p.n), static_cast<cuuint64_t>(p.rows)}, strides[1] = {sizes[0] * 2};
  const cuuint32_t boxes[2] = {static_cast<cuuint32_t>(box), 16};
  const CUtensorMapSwizzle swizzle = box == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : box == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                 : CU_TENSOR_MAP_SWIZZLE_32B;
  return encode_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p.out, sizes, strides, boxes, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

template <class Config, class Out>
void run_large_m(const TensorView& a, const TensorView& b, const Product& p, cudaStream_t stream) {
  TokenMaps<Config> a_maps;
  for (int i = 0; i < Config::kTokenMaps; ++i) a_maps.maps[i] = map_of(a, (i + 1) * Config::kBoxStep);
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uint64_t>(pointer) % 16 == 0; };
  const bool vector_scales = p.slices % 4 == 0 && p.a_scale_stride % 4 == 0 && aligned(p.a_scale);
  const bool bulk_stores = std::is_same_v<Out, __nv_bfloat16> && p.n % 8 == 0 && aligned(p.out);
  const CUtensorMap out_map = bulk_stores ? out_map_of(p, Config::kBox) : a_maps.maps[0];
  constexpr int kCluster = Config::kCluster;
  const dim3 grid(common::multiprocessors(a) / kCluster * kCluster);
  launch_kernel(large_m_kernel<Config, Out>, {grid, Config::kThreads, Config::kSharedBytes, stream, kCluster, true}, a_maps,
                map_of(b, Config::kWeightBox), out_map, p, vector_scales, bulk_stores);
}

}  // namespace

// Arguments of all functions below: a [rows, K] and b [S, N, K] e4m3 with rows on 16-byte boundaries; a_scale [rows, slices] and b_scale
// [S, ceil(N / 128), slices] fp32; offsets int32 [E + 1], or none where E is 1; slots int32 [E]: the weight of each expert, -1: its rows
// are not computed, or none where S is E; out [M, N] bf16 or fp32, contiguous.

// The kernel for many rows, with tiles of `rows` x `columns`; `paired`: two CTAs share an operand. fp32 results always have tiles of 128 x 128.
// claimed: int32 [1], holding anything, with which pairs that share tokens claim tiles as they come; none: each pair has its own.
void large_m(int64_t rows, int64_t columns, bool paired, TensorView a, TensorView a_scale, TensorView b, TensorView b_scale,
             Optional<TensorView> offsets, Optional<TensorView> slots, TensorView out, Optional<TensorView> claimed) {
  DeviceGuard guard(a);
  Product p = product_of(a, a_scale, b, b_scale, offsets, slots, Optional<TensorView>(), out);
  p.claimed = data<int32_t>(claimed);
  if (p.claimed != nullptr) common::check(cudaMemsetAsync(p.claimed, 0, sizeof(int32_t), stream_of(a)), "claimed tiles");
  const auto run = [&](auto config, auto element) { run_large_m<decltype(config), decltype(element)>(a, b, p, stream_of(a)); };
  constexpr Shares kNothing = Shares::kNothing, kTokens = Shares::kTokens, kWeights = Shares::kWeights;
  const __nv_bfloat16 bf16 = {};
  if (out.dtype().code != kDLBfloat) return run(LargeM<2, 1, 1, 128, kNothing, true>(), 0.0f);
  switch ((rows * 1000 + columns) * 2 + paired) {
    case 64'032 * 2: return run(LargeM<1, 1, 1, 32, kNothing>(), bf16);
    case 64'064 * 2: return run(LargeM<1, 1, 1, 64, kNothing>(), bf16);
    case 64'112 * 2: return run(LargeM<1, 1, 1, 112, kNothing>(), bf16);
    case 64'288 * 2 + 1: return run(LargeM<1, 2, 1, 144, kTokens>(), bf16);
    case 192'128 * 2 + 1: return run(LargeM<3, 1, 1, 128, kTokens, false, 2, 16>(), bf16);
    case 128'128 * 2: return run(LargeM<2, 1, 1, 128, kNothing, true>(), bf16);
    case 128'144 * 2: return run(LargeM<2, 1, 1, 144, kNothing>(), bf16);
    case 128'192 * 2: return run(LargeM<2, 1, 1, 192, kNothing>(), bf16);
    case 128'256 * 2: return run(LargeM<2, 1, 2, 128, kNothing>(), bf16);
    case 128'256 * 2 + 1: return run(LargeM<2, 1, 2, 128, kWeights>(), bf16);
  }
  TVM_FFI_THROW(ValueError) << "tile is " << rows << " x " << columns << (paired ? " in pairs" : "") << "; expected one of cuda/fp8_gemm.py";
}

// The kernel for small M. tokens: the size of a token tile, 8 to 128. splits: parts of K, up to 8, each added in ascending order of slices;
// 0: chosen by the number of tiles. sorted_token_ids: int32 [M], the row of a for each row of out, or none. expected_tiles: how many token
// tiles will hold any token; 0: all.
// static_weights: the previous kernel has not written b (pdl.cuh). beside_previous: a, a_scale were complete before the previous kernel started;
// with static_weights and without offsets the product then runs at the same time as that kernel, and waits for its end before it writes.
void swap_ab(int64_t tokens, int64_t splits, bool static_weights, TensorView a, TensorView a_scale, TensorView b, TensorView b_scale,
             Optional<TensorView> offsets, Optional<TensorView> slots, Optional<TensorView> sorted_token_ids, TensorView out,
             int64_t expected_tiles, bool beside_previous) {
  run_swap_ab(tokens, {{a, a_scale, b, b_scale, offsets, slots, sorted_token_ids, out, expected_tiles}}, splits, static_weights,
              beside_previous);
}

// The products of the same rows with two or three weights [1, N, K].
void swap_ab_2(int64_t tokens, int64_t splits, bool static_weights, TensorView a, TensorView a_scale, TensorView b, TensorView b_scale,
               TensorView out, TensorView b2, TensorView b2_scale, TensorView out2) {
  const Optional<TensorView> none;
  run_swap_ab(tokens, {{a, a_scale, b, b_scale, none, none, none, out, 0}, {a, a_scale, b2, b2_scale, none, none, none, out2, 0}}, splits,
              static_weights, false);
}
void swap_ab_3(int64_t tokens, int64_t splits, bool static_weights, TensorView a, TensorView a_scale, TensorView b, TensorView b_scale,
               TensorView out, TensorView b2, TensorView b2_scale, TensorView out2, TensorView b3, TensorView b3_scale, TensorView out3) {
  const Optional<TensorView> none;
  run_swap_ab(tokens,
              {{a, a_scale, b, b_scale, none, none, none, out, 0},
               {a, a_scale, b2, b2_scale, none, none, none, out2, 0},
               {a, a_scale, b3, b3_scale, none, none, none, out3, 0}},
              splits, static_weights, false);
}

// The shared expert's product (a, b, out) and the routed experts' products in one launch.
void swap_ab_with_shared(int64_t tokens, int64_t splits, bool static_weights, TensorView a, TensorView a_scale, TensorView b,
                         TensorView b_scale, TensorView out, TensorView rows, TensorView rows_scale, TensorView experts,
                         TensorView experts_scale, TensorView offsets, Optional<TensorView> slots,
                         Optional<TensorView> sorted_token_ids, TensorView rows_out, int64_t expected_tiles, bool beside_previous) {
  const Optional<TensorView> none;
  run_swap_ab(tokens,
              {{a, a_scale, b, b_scale, none, none, none, out, 0},
               {rows, rows_scale, experts, experts_scale, offsets, slots, sorted_token_ids, rows_out, expected_tiles}},
              splits, static_weights, beside_previous);
}

}  // namespace gemm

TVM_FFI_DLL_EXPORT_TYPED_FUNC(large_m, gemm::large_m);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(swap_ab, gemm::swap_ab);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(swap_ab_2, gemm::swap_ab_2);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(swap_ab_3, gemm::swap_ab_3);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(swap_ab_with_shared, gemm::swap_ab_with_shared);
