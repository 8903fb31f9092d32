// The arguments of this folder's kernels, and how they write a selected position.
#pragma once

#include "radix.cuh"

namespace topk {

struct Problem {
  const float* logits;
  int64_t row_stride;
  const int32_t* starts;  // null: all zero
  const int32_t* ends;
  const int32_t* block_table;  // or null: write positions
  int64_t table_stride;
  int32_t* out;                // [rows, k]
  int columns, k;
  int page_size, page_shift;   // page_shift: log2 of page_size, or -1 if it is no power of two
  int capacity;                // the most candidates that fit; not for short rows
};

__device__ __forceinline__ int slot_of(const Problem& p, const int32_t* pages, int position) {
  if (p.page_shift >= 0) return (pages[position >> p.page_shift] << p.page_shift) + (position & (p.page_size - 1));
  return pages[position / p.page_size] * p.page_size + position % p.page_size;
}

__device__ __forceinline__ void write(const Problem& p, int row, uint32_t to, int position) {
  const int32_t* pages = p.block_table ? p.block_table + row * p.table_stride : nullptr;
  p.out[int64_t(row) * p.k + to] = pages ? slot_of(p, pages, position) : position;
}

}  // namespace topk
