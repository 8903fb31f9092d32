// Rows of a weight that a later kernel reads, brought into L2 by a kernel that leaves the memory idle. No result depends on it.
#pragma once

#include "launch.cuh"

namespace common {

struct L2Prefetch {
  const uint8_t* first;
  int64_t stride;     // bytes between the pieces
  int pieces, bytes;  // of a piece: a multiple of 16
};

// One of each `every` pieces of weight [rows, columns], whose rows are multiples of 16 bytes; none without a weight. A piece is one row, or as
// many neighbours as a power of two and `kBytes` allow: an instruction asks for a piece.
inline L2Prefetch l2_prefetch_of(const Optional<TensorView>& weight, int64_t every) {
  constexpr int64_t kBytes = 16384;
  L2Prefetch p = {};
  if (!weight.has_value() || every <= 0) return p;
  const TensorView rows = weight.value();
  const int64_t element = rows.dtype().bits / 8, count = rows.size(0);
  int64_t neighbours = 1;
  if (rows.stride(0) == rows.size(1))
    while (count % (2 * neighbours) == 0 && 2 * neighbours * rows.size(1) * element <= kBytes) neighbours *= 2;
  p.first = data<const uint8_t>(rows);
  p.stride = rows.stride(0) * element * neighbours * every;
  p.pieces = static_cast<int>((count / neighbours + every - 1) / every);
  p.bytes = static_cast<int>(rows.size(1) * element * neighbours);
  return p;
}

// The pieces of a kernel's CTA number `cta` of `ctas`, by its first `threads` threads.
__device__ __forceinline__ void prefetch_to_l2(const L2Prefetch& p, int cta, int ctas, int threads) {
  for (int piece = cta + static_cast<int>(threadIdx.x) * ctas; piece < p.pieces; piece += ctas * threads)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p.first + piece * p.stride), "r"(p.bytes) : "memory");
}

}  // namespace common
