// The outputs of an item of the attention core: results, or partial results for the merging kernel.
#pragma once

#include "softmax.cuh"

namespace mla {

// Lanes of a quad hold two columns each of every 8-column group: trade, so that each lane stores 16 bytes of one group.
template <class Element>
__device__ __forceinline__ void store_row(Element* row, const float (&o)[128], int half, float factor, bool write) {
  const int t = threadIdx.x & 3;
#pragma unroll
  for (int group = 0; group < 8; ++group) {
    uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = (4 * group + i) * 4 + 2 * half;
      v[i] = pack<Element>(o[at] * factor, o[at + 1] * factor);
    }
    // A 4 x 4 transpose over the quad in two exchanges.
    const bool odd = t & 1, upper = t & 2;
    const uint32_t a = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 1), b = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 1);
    const uint32_t x0 = odd ? a : v[0], x1 = odd ? v[1] : a, x2 = odd ? b : v[2], x3 = odd ? v[3] : b;
    const uint32_t c = __shfl_xor_sync(~0u, upper ? x0 : x2, 2), d = __shfl_xor_sync(~0u, upper ? x1 : x3, 2);
    const uint4 mine = upper ? make_uint4(c, d, x2, x3) : make_uint4(x0, x1, c, d);
    if (write) *reinterpret_cast<uint4*>(row + group * 32 + t * 8) = mine;
  }
}

// The result of an item without keys, which both groups write together.
template <class C>
__device__ __forceinline__ void finish_empty(const Problem& p, const typename C::Work& item, int first_row) {
  const int rows = min(kRows, p.rows - first_row);
  for (int i = threadIdx.x; i < rows * (kValueWidth / 4); i += 256) {
    const int r = first_row + i / (kValueWidth / 4), column = i % (kValueWidth / 4) * 4;
    const int64_t at = int64_t(!C::kPlanned || item.split < 0 ? item.query : item.split) * p.rows + r;
    if (!C::kPlanned || item.split < 0) {
      *reinterpret_cast<uint2*>(static_cast<typename C::Element*>(p.out) + at * kValueWidth + column) = make_uint2(0, 0);
      if (column == 0) {
        p.lse[at] = -INFINITY;
        if (p.max_logits != nullptr) p.max_logits[at] = -INFINITY;
      }
    } else {
      *reinterpret_cast<float4*>(p.partial_out + at * kValueWidth + column) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (column == 0) p.partial_lse[at] = -INFINITY;
      if (C::kEqual && column == 0) p.partial_top[at] = -INFINITY;
    }
  }
}

// Publishes this group's sums and maxima of rows, for blocks of one parity.
__device__ __forceinline__ void publish(SharedMemory& s, int parity, const float (&sums)[2], const float (&tops)[2]) {
  const int lane = threadIdx.x & 31, line = (threadIdx.x & 127) / 32 * 16 + lane / 4;
  float total[2], top[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = sums[half];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    total[half] = sum;
    top[half] = tops[half];
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if ((lane & 3) == 0) {
      s.sum[parity][line + 8 * half] = total[half];
      s.top[parity][line + 8 * half] = top[half];
    }
}

// Divides this group's half of the output by the published sums, and stores it.
template <class C>
__device__ __forceinline__ void finish(const Problem& p, SharedMemory& s, const typename C::Work& item, float (&o)[128],
                                       RowState& row, int first_row, int group) {
  using Element = typename C::Element;
  const int lane = threadIdx.x & 31, line = (threadIdx.x & 127) / 32 * 16 + lane / 4;
  float total[2], top[2];
  named_sync(kSums, 256);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // The same order in both groups, so that both halves of a row are divided by the same number.
    total[half] = s.sum[0][line + 8 * half] + s.sum[1][line + 8 * half];
    top[half] = fmaxf(s.top[0][line + 8 * half], s.top[1][line + 8 * half]);
  }
  named_sync(kSums, 256);  // read by both, before either writes its next item's
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = first_row + line + 8 * half;
    const bool write = r < p.rows;
    const bool empty = top[half] == -INFINITY;
    const float lse = empty ? -INFINITY : row.reference[half] + log2f(total[half]);
    float factor = empty ? 0.0f : 1.0f / total[half];
    if (!C::kPlanned || item.split < 0) {
      if (p.sink != nullptr && write && !empty)
        factor = 1.0f / (total[half] + exp2f(p.sink[C::kOneToken ? r : r % p.heads] * 1.4426950408889634f - row.reference[half]));
      const int64_t at = int64_t(item.query) * p.rows + r;
      store_row<Element>(static_cast<Element*>(p.out) + at * kValueWidth + group * 256, o, half, factor, write);
      if (group == 0 && (lane & 3) == 0 && write) {
        p.lse[at] = lse * p.lse_factor;
        if (p.max_logits != nullptr) p.max_logits[at] = top[half] * p.scale;
      }
    } else if (write) {
      const int64_t at = int64_t(item.split) * p.rows + r;
      float* target = p.partial_out + at * kValueWidth + group * 256 + 4 * (lane & 3);
#pragma unroll
      for (int i = 0; i < 16; ++i)  // in the order of partial_column
        *reinterpret_cast<float4*>(target + 16 * i) = make_float4(o[8 * i + 2 * half] * factor, o[8 * i + 2 * half + 1] * factor,
                                                                  o[8 * i + 2 * half + 4] * factor, o[8 * i + 2 * half + 5] * factor);
      if (group == 0 && (lane & 3) == 0) p.partial_lse[at] = lse;
      if (C::kEqual && group == 0 && (lane & 3) == 0) p.partial_top[at] = top[half];
    }
  }
}

}  // namespace mla
