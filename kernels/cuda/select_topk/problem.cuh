// The arguments of this folder's kernels, and how they write a selected position.
#pragma once

#include "../common/pdl.cuh"
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
  int32_t* record;             // or null; [rows, 2, k]: positions, and the bits of their logits; only without starts
  int64_t record_stride;       // between rows
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
  if (p.record == nullptr) return;
  int32_t* record = p.record + row * p.record_stride + to;
  record[0] = position;
  record[p.k] = __float_as_int(__ldg(p.logits + row * p.row_stride + position));
}

__device__ __forceinline__ void write_none(const Problem& p, int row, uint32_t to) {
  p.out[int64_t(row) * p.k + to] = -1;
  if (p.record != nullptr) p.record[row * p.record_stride + to] = -1;
}

}  // namespace topk
