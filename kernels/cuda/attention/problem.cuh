// The arguments of one launch of an attention kernel, and the division of its work into items.
#pragma once

#include <cstdint>

namespace common {}

namespace mla {

using namespace common;

constexpr int kWidth = 576;       // latent 512 + rope 64
constexpr int kValueWidth = 512;  // the latent is the value
constexpr int kRows = 64;         // query rows (heads) of a CTA: one warpgroup MMA is 64 rows high
constexpr int kBlock = 64;        // keys of a block
constexpr int kRecord = 656;      // bytes of an FP8 token: 512 e4m3, 4 fp32 scales, 64 bf16

// The reference that exponentials are taken from follows the maximum of a row only when the maximum exceeds it by more than this, in
// log2: after the first blocks, accumulators are hardly ever rescaled.
constexpr float kLazy = 8.0f;
constexpr float kFloor = -1e30f;  // the first reference: finite, so that -inf - reference is never NaN

enum class Lookup {
  kIndices,  // table[query, column] is a slot; invalid if negative or past the end
  kPages,    // table[query, position / page] is a page
  kList,     // table[lengths[query] + position] is a slot
};
enum class Storage {
  kRows,       // 576 contiguous 16-bit values
  kSplitRows,  // 512 in one array, 64 in another
  kFp8,        // 656-byte records
};

constexpr uint32_t kNoRecord = ~0u;

struct Keys {
  const int32_t* table;
  int64_t table_stride;
  const int32_t* lengths;  // columns that count (kIndices, may be null), context lengths (kPages), offsets (kList)
  int lengths_divisor;     // consecutive queries that share an entry of `lengths`
  int width;               // columns of the table
  int64_t slots;           // valid entries of the table are below this: slots, or pages (kPages)
  const uint8_t* latent;
  const uint8_t* rope;     // of slot 0
  int64_t row_bytes, rope_row_bytes, page_bytes;
  int page_size;
  bool linear;             // rows are row_bytes apart across pages, too
  uint32_t zero;           // 0, which the compiler does not know

  template <Lookup kLookup>
  __device__ __forceinline__ int count(int query) const {
    if constexpr (kLookup == Lookup::kIndices)
      return lengths == nullptr ? width : min(max(lengths[query / lengths_divisor], 0), width);
    else if constexpr (kLookup == Lookup::kPages)
      return max(lengths[query], 0);
    else
      return lengths[query + 1] - lengths[query];
  }
  // kIndices: the table's entry, or -1 past the end, and whether it is a slot.
  __device__ __forceinline__ int fetch(int query, int column, int count) const {
    return column < count ? __ldg(table + query * table_stride + column) : -1;
  }
  __device__ __forceinline__ bool valid(int index) const { return index >= 0 && index < slots; }
  // kPages: the page of a column. A context that is longer than its row of the table reads no other row.
  __device__ __forceinline__ int page_of(int query, int column) const {
    return __ldg(table + query * table_stride + min(column / page_size, width - 1));
  }
  // The slot of one column, or -1. `count` is count(query).
  template <Lookup kLookup>
  __device__ __forceinline__ int slot(int query, int column, int count) const {
    if (column >= count) return -1;
    if constexpr (kLookup == Lookup::kIndices) {
      const int index = fetch(query, column, count);
      return valid(index) ? index : -1;
    } else if constexpr (kLookup == Lookup::kPages) {
      const int page = page_of(query, column);
      return valid(page) ? page * page_size + column % page_size : -1;
    } else {
      const int index = __ldg(table + min(max(lengths[query] + column, 0), width - 1));
      return valid(index) ? index : -1;
    }
  }
  __device__ __forceinline__ int64_t offset(int slot) const {
    if (linear) return slot * row_bytes;
    return (slot / page_size) * page_bytes + (slot % page_size) * row_bytes;
  }
  // The start of an index's record, in units of 16 bytes.
  __device__ __forceinline__ uint32_t record_of(int index) const {
    return valid(index) ? static_cast<uint32_t>(offset(index) >> 4) : kNoRecord;
  }
};

// Split-KV: the blocks of queries that one part of the grid computes. Written by plan_kernel, once a step for all layers.
struct Part {
  int32_t first_query, first_block, last_query, end_block, first_split, pad0, pad1, pad2;
};

struct Problem {
  const void* q;
  const void* q_rope;  // the last 64 dims of row 0
  int64_t q_stride, q_new_stride, q_head_stride;          // elements: query, new token within a query, head
  int64_t q_rope_stride, q_rope_head_stride;
  int queries, heads, rows;  // rows = heads * new tokens of a query
  int groups;                // row blocks of a query, counted in clusters
  int new_tokens;
  bool causal;
  float scale_log2;          // softmax scale times log2 e
  float scale;
  Keys keys;
  const float* sink;         // [heads], natural units; null for none
  void* out;                 // [queries, rows, 512]
  float* lse;                // [queries, rows]
  float lse_factor;          // from base 2 to the caller's base
  float* max_logits;         // [queries, rows] or null
  // Split-KV; null and unused when every item is a whole query.
  const Part* parts;
  const int32_t* split_offset;  // [queries + 1]
  int part_count;
  float* partial_out;           // [splits, rows, 512]
  float* partial_lse;           // [splits, rows], base 2
  // Planned::kEqual: a query has `pieces` parts of `piece_blocks` blocks each.
  int pieces, piece_blocks;
  float* partial_top;           // [splits, rows]
};

// Partial results are in the order in which the threads of an MMA hold them, so that each stores 16 bytes: of every 16 columns, those at
// 4 t ... 4 t + 3 are columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9. This is the first of the four at `stored`, a multiple of four.
__device__ __forceinline__ int partial_column(int stored) { return (stored & ~15) + (stored >> 1 & 6); }

// How a launch divides the work: by a plan into parts, or all queries alike, a part for each cluster.
enum class Planned { kNever, kPerhaps, kAlways, kEqual };

// One CTA's next piece of work: blocks [begin, end) of the keys of `query`.
template <Lookup kLookup, Planned kPlanned = Planned::kPerhaps>
struct Items {
  static constexpr bool kNeverPlanned = kPlanned == Planned::kNever, kAlwaysPlanned = kPlanned == Planned::kAlways;
  static constexpr bool kEqual = kPlanned == Planned::kEqual;
  const Problem& p;
  int query, group, begin, end, split;  // split: slot in the partial buffers, or -1: this item is the whole query
  int keys;                             // columns of the query that count
  int step_;
  Part part_;
  bool more_;

  __device__ __forceinline__ Items(const Problem& problem, int cluster, int clusters) : p(problem) {
    if constexpr (kEqual) {
      const int part = cluster / p.groups;
      group = cluster - part * p.groups;
      query = part / p.pieces;
      item_ = part - query * p.pieces;
      more_ = true;
    } else if (kNeverPlanned || (!kAlwaysPlanned && p.parts == nullptr)) {
      step_ = clusters;
      item_ = cluster;
      more_ = cluster < p.queries * p.groups;
      query = item_ / p.groups;
      group = item_ - query * p.groups;
    } else {
      group = cluster % p.groups;
      const int part = cluster / p.groups;
      part_ = p.parts[part];
      query = part_.first_query;
      more_ = query <= part_.last_query;
    }
    if (more_) load();
  }
  __device__ __forceinline__ bool more() const { return more_; }
  // Sets `split`. With kAlways load() leaves that to the math groups: the producer should not wait for the plan's second table.
  __device__ __forceinline__ void find_split() {
    const int first = p.split_offset[query], splits = p.split_offset[query + 1] - first;
    if (splits > 1) split = first + (query == part_.first_query ? part_.first_split : 0);
  }
  __device__ __forceinline__ void next() {
    if constexpr (kEqual) {
      more_ = false;
    } else if (kNeverPlanned || (!kAlwaysPlanned && p.parts == nullptr)) {
      item_ += step_;
      more_ = item_ < p.queries * p.groups;
      query = item_ / p.groups;
      group = item_ - query * p.groups;
    } else {
      more_ = ++query <= part_.last_query;
    }
    if (more_) load();
  }

 private:
  int item_;
  __device__ __forceinline__ void load() {
    keys = p.keys.template count<kLookup>(query);
    begin = 0;
    end = (keys + kBlock - 1) / kBlock;
    split = -1;
    if constexpr (kEqual) {
      begin = item_ * p.piece_blocks;
      end = min(end, begin + p.piece_blocks);
      split = query * p.pieces + item_;
    } else if constexpr (kAlwaysPlanned) {
      if (query == part_.first_query) begin = part_.first_block;
      if (query == part_.last_query) end = min(end, part_.end_block);
    } else if (!kNeverPlanned && p.parts != nullptr) {
      const int first = p.split_offset[query], splits = p.split_offset[query + 1] - first;
      if (query == part_.first_query) begin = part_.first_block;
      if (query == part_.last_query) end = min(end, part_.end_block);
      if (splits > 1) split = first + (query == part_.first_query ? part_.first_split : 0);
    }
  }
};

}  // namespace mla
