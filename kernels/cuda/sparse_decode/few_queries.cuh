// Few heads: a warp's rows of Q as MMA fragments in fp16, scaled by powers of two.
#pragma once

#include "few_records.cuh"

namespace mla {

// The rows of this warp's lanes: A fragments of its 128 latent dims in fp16, and of 16 rope dims in bf16.
struct FewQueries {
  uint32_t latent[8][4], rope[4];
  float unit;  // of head 4 warp + lane / 8: what scores of its scaled row have to be multiplied by, softmax scale and log2 e included
};

template <int kStages>
__device__ __forceinline__ void load_few_queries(const Problem& p, FewMemory<kStages>& s, const Items<Lookup::kIndices>& item,
                                                 FewQueries& q) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
  uint4 raw[2][2][2];
  uint2 rope[2];
  float largest[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = item.group * kFewRows + g + 8 * i;
    const bool valid = row < p.rows;
    const uint16_t* source = static_cast<const uint16_t*>(p.q) + item.query * p.q_stride + (valid ? row : 0) * p.q_head_stride;
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        raw[i][c][k] = valid ? *reinterpret_cast<const uint4*>(source + 128 * warp + 64 * c + 16 * t + 8 * k) : make_uint4(0, 0, 0, 0);
        const uint32_t words[4] = {raw[i][c][k].x, raw[i][c][k].y, raw[i][c][k].z, raw[i][c][k].w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
          largest[i] = fmaxf(largest[i], fmaxf(fabsf(__uint_as_float(words[j] << 16)), fabsf(__uint_as_float(words[j] & 0xffff0000u))));
      }
    rope[i] = valid ? *reinterpret_cast<const uint2*>(source + kValueWidth + 16 * warp + 4 * t) : make_uint2(0, 0);
    largest[i] = fmaxf(largest[i], __shfl_xor_sync(~0u, largest[i], 1));
    largest[i] = fmaxf(largest[i], __shfl_xor_sync(~0u, largest[i], 2));
    if (t == 0) s.largest[warp][g + 8 * i] = largest[i];
  }
  named_sync(1, kFewMath);
  // 2^14 over the power of two in the row's largest magnitude, so that fp16 keeps whatever matters of it.
  const auto exponent = [&](int row) {
    const float most = fmaxf(fmaxf(s.largest[0][row], s.largest[1][row]), fmaxf(s.largest[2][row], s.largest[3][row]));
    const int e = static_cast<int>(__float_as_uint(most) >> 23) - 127;
    return most > 0.0f ? min(max(14 - e, -60), 60) : 0;
  };
  const auto power = [](int e) { return __uint_as_float(static_cast<uint32_t>(e + 127) << 23); };
  q.unit = p.scale_log2 * power(-exponent(4 * warp + (lane >> 3)));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float scale = power(exponent(g + 8 * i));
    const auto scaled = [&](uint32_t word, float& low, float& high) {
      low = __uint_as_float(word << 16) * scale;
      high = __uint_as_float(word & 0xffff0000u) * scale;
    };
    float low, high;
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint32_t words[4] = {raw[i][c][k].x, raw[i][c][k].y, raw[i][c][k].z, raw[i][c][k].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {  // dims 16 t + 8 k + 2 j: step 2 k + j / 2 of the chunk, first or second pair
          scaled(words[j], low, high);
          q.latent[4 * c + 2 * k + j / 2][i + 2 * (j & 1)] = pack<__half>(low, high);
        }
      }
    scaled(rope[i].x, low, high);
    q.rope[i] = pack<__nv_bfloat16>(low, high);
    scaled(rope[i].y, low, high);
    q.rope[i + 2] = pack<__nv_bfloat16>(low, high);
  }
}

}  // namespace mla
