#include "kernels.cuh"

namespace cache_stamps {

using common::check;
using common::data;
using common::DeviceGuard;
using common::launch_pdl;
using common::stream_of;
using tvm::ffi::Optional;
using tvm::ffi::TensorView;

// tokens, positions, slots int64 [T], block_table int32 [B, W], query_starts int32 [B + 1] or none, chains int64 [S, 2], factors int64 [L, 2],
// multipliers int64 [N] -> chains of the new slots, stamps int32 [L, 2, T].
void stamp_tokens(TensorView tokens, TensorView positions, TensorView slots, TensorView block_table,
                  Optional<TensorView> query_starts, TensorView chains, TensorView factors, TensorView multipliers, TensorView stamps, int64_t page_size) {
  DeviceGuard guard(tokens);
  Stamping p = {};
  p.tokens = data<int64_t>(tokens);
  p.positions = data<int64_t>(positions);
  p.slots = data<int64_t>(slots);
  p.block_table = data<int32_t>(block_table);
  p.query_starts = data<int32_t>(query_starts);
  p.multipliers = data<uint64_t>(multipliers);
  p.factors = data<uint64_t>(factors);
  p.chains = data<Chain>(chains);
  p.stamps = data<int32_t>(stamps);
  p.width = static_cast<int>(block_table.stride(0));
  p.page_size = static_cast<int>(page_size);
  p.columns = static_cast<int>(factors.size(0) * factors.size(1));
  p.tokens_count = static_cast<int>(tokens.size(0));
  launch_pdl(stamp_kernel, dim3(static_cast<unsigned>(block_table.size(0))), kStampThreads, 0, stream_of(tokens), p);
}

// The arguments of check_cache in kernels/cache_stamps.py, and the tensors of its Stamps.
void check_cache(TensorView block_table, TensorView step, Optional<TensorView> tasks, Optional<TensorView> lengths,
                 Optional<TensorView> truths, TensorView chains, TensorView columns, TensorView hashes, TensorView factors,
                 TensorView multipliers, TensorView addresses, TensorView claims, TensorView found, int64_t page_size,
                 int64_t latent_words, int64_t index_words, int64_t padding_page) {
  DeviceGuard guard(block_table);
  Checking p = {};
  p.chains = data<Chain>(chains);
  p.columns = data<int32_t>(columns);
  p.hashes = data<uint64_t>(hashes);
  p.factors = data<uint64_t>(factors);
  p.multipliers = data<uint64_t>(multipliers);
  p.addresses = data<uint64_t>(addresses);
  p.block_table = data<int32_t>(block_table);
  p.step = data<int64_t>(step);
  p.tasks = data<int64_t>(tasks);
  p.lengths = data<int32_t>(lengths);
  p.truths = data<int64_t>(truths);
  p.claims = data<unsigned long long>(claims);
  p.found = data<int64_t>(found);
  p.slots = chains.size(0);
  p.pages = hashes.size(2);
  p.found_size = found.size(1);
  p.page_words[0] = static_cast<int>(latent_words);
  p.page_words[1] = static_cast<int>(index_words);
  p.width = static_cast<int>(block_table.stride(0));
  p.page_size = static_cast<int>(page_size);
  p.padding_page = static_cast<int>(padding_page);
  p.batch = static_cast<int>(block_table.size(0));
  p.count = tasks.has_value() ? static_cast<int>(tasks.value().size(0)) : 2 * p.batch;
  p.truth_count = truths.has_value() ? static_cast<int>(truths.value().size(0)) : 0;
  const dim3 grid(static_cast<unsigned>(p.count + (p.truth_count > 0 ? 1 : 0)), static_cast<unsigned>(hashes.size(0)));
  if (grid.x > 0) launch_pdl(check_kernel, grid, kCheckThreads, 0, stream_of(block_table), p);
}

}  // namespace cache_stamps

TVM_FFI_DLL_EXPORT_TYPED_FUNC(stamp_tokens, cache_stamps::stamp_tokens);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(check_cache, cache_stamps::check_cache);
