// FP8 sparse attention for few heads (16 of a query at a time), where most of the time goes into loading and converting keys, and most
// rows of a 64-row MMA would be zeros. Sixteen heads are the M of mma.sync. Records stay FP8 in shared memory and become fp16 fragments in
// registers.
//
//   producers (2 warps)   one bulk copy a record, into blocks of 64 records, two or four blocks deep
//   math (4 warps)        warp w scores all 64 keys over the 128 latent dims of scale group w and 16 rope dims; partial scores are added
//                         in shared memory; warp w does the softmax of heads 4 w ... 4 w + 3; then adds P V for the dims of group w
//
// e4m3 is exact in fp16, and scales stay outside: they multiply partial scores in fp32, and P before its product with V. Rows of Q are
// scaled by powers of two so that fp16 loses nothing of bf16.
#pragma once

#include "../attention/problem.cuh"
#include "../common/ptx.cuh"

namespace mla {

// ---- Records of keys in shared memory, and the two warps that bring them.

constexpr int kFewRows = 16;
constexpr int kFewMath = 128, kFewThreads = 192;
constexpr int kPitch = 672;       // of a record: 32 bytes past a multiple of 128, so that neighbours share no bank
constexpr int kScorePitch = 72;   // floats: eight banks further each row
constexpr int kProbabilityPitch = 144;  // bytes

template <int kStages>
struct FewMemory {
  uint8_t records[kStages][kBlock * kPitch];
  float scores[4][kFewRows * kScorePitch];
  uint8_t probabilities[kFewRows * kProbabilityPitch];
  float largest[4][kFewRows];  // of |q|, by warp
  float factor[kFewRows];      // rescales accumulated rows to a new block's reference
  float inverse[kFewRows];     // divides them by their sums at the end
  uint32_t mask[kStages][2];
  uint64_t full[kStages], empty[kStages];
};
static_assert(2 * (sizeof(FewMemory<2>) + 1024) <= 233472 && sizeof(FewMemory<4>) <= 232448, "two CTAs, or one, on a multiprocessor");

// The place of the record of a block's column: rows of the columns 2 t + b for fixed b, and rows for fixed t, both fall into different banks.
__device__ __forceinline__ int record_of(int column) {
  const int t = column >> 1 & 3, b = column & 1;
  return (column & ~7) + 4 * b + ((t + 2 * b) & 3);
}

__device__ __forceinline__ uint4 load_shared16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}
__device__ __forceinline__ uint2 load_shared8(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}
__device__ __forceinline__ float load_shared_float(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address));
  return v;
}
// Four e4m3 to two pairs of fp16.
__device__ __forceinline__ void widen(uint32_t bytes, uint32_t& low, uint32_t& high) {
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(bytes));
}
__device__ __forceinline__ uint32_t multiply_halves(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

template <int kStages>
__device__ __forceinline__ void few_producer(const Problem& p, FewMemory<kStages>& s) {
  const int lane = threadIdx.x & 31, half = (threadIdx.x - kFewMath) / 32;
  const uint32_t target = shared_address(s.records[0]) + record_of(32 * half + lane) * kPitch;
  uint32_t fills = 0;
  for (Items<Lookup::kIndices> item(p, blockIdx.x, gridDim.x); item.more(); item.next()) {
    if (item.begin >= item.end) continue;
    const auto look_up = [&](int block, int which) {
      return p.keys.slot<Lookup::kIndices>(item.query, block * kBlock + 32 * which + lane, item.keys);
    };
    int mine = look_up(item.begin, half), theirs = look_up(item.begin, half ^ 1);
    for (int block = item.begin; block < item.end; ++block, ++fills) {
      const int stage = fills % kStages, slot = mine;
      const uint32_t flags = __ballot_sync(~0u, slot >= 0), other = __ballot_sync(~0u, theirs >= 0);
      if (block + 1 < item.end) {
        mine = look_up(block + 1, half);
        theirs = look_up(block + 1, half ^ 1);
      }
      const uint32_t full = shared_address(&s.full[stage]), record = target + stage * kBlock * kPitch;
      barrier_wait(shared_address(&s.empty[stage]), (fills / kStages & 1) ^ 1);
      fence_async_proxy();  // zeros of an earlier round
      if (slot < 0 && (flags | other) != 0) {
#pragma unroll 1
        for (int i = 0; i < kValueWidth + 16; i += 16) store_shared16(record + i, 0, 0, 0, 0);
      }
      __syncwarp();
      if (lane == 0) {
        *reinterpret_cast<volatile uint32_t*>(&s.mask[stage][half]) = flags;
        barrier_arrive_expect(full, __popc(flags) * kRecord);
      }
      __syncwarp();
      if (slot >= 0) copy_bulk(record, p.keys.latent + p.keys.offset(slot), kRecord, full);
    }
  }
}

// ---- A warp's rows of Q as MMA fragments in fp16, scaled by powers of two.

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
  // 2^14 over the power of two in the row's largest magnitude, so that fp16 keeps every bit that matters.
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

template <int kStages>
__device__ __forceinline__ void few_math(const Problem& p, FewMemory<kStages>& s) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
  const uint32_t records = shared_address(s.records[0]);
  const uint32_t key = records + record_of(g) * kPitch;  // this lane's column of every eight
  const uint32_t key_bytes = key + 128 * warp + 16 * t, key_rope = key + kValueWidth + 16 + 32 * warp + 8 * t;
  const uint32_t even = records + record_of(2 * t) * kPitch, odd = records + record_of(2 * t + 1) * kPitch;
  const uint32_t scores = shared_address(s.scores[0]), probabilities = shared_address(s.probabilities);
  const int head = 4 * warp + (lane >> 3), part = lane & 7;  // of the softmax: columns 4 part ... and 32 + 4 part ...
  uint32_t fills = 0;
  for (Items<Lookup::kIndices> item(p, blockIdx.x, gridDim.x); item.more(); item.next()) {
    FewQueries q;
    load_few_queries(p, s, item, q);
    float o[16][4] = {};
    float reference = kFloor, sum = 0.0f, top = -INFINITY;  // of `head`; sum of this lane's columns
    float unit = 1.0f;                                      // accumulated values are in units of this, a power of two
    for (int block = item.begin; block < item.end; ++block, ++fills) {
      const int stage = fills % kStages;
      barrier_wait(shared_address(&s.full[stage]), fills / kStages & 1);
      const uint32_t low_mask = *reinterpret_cast<volatile uint32_t*>(&s.mask[stage][0]);
      const uint32_t high_mask = *reinterpret_cast<volatile uint32_t*>(&s.mask[stage][1]);
      if ((low_mask | high_mask) == 0) {
        release_local(s.empty[stage]);
        continue;
      }
      const uint32_t at = stage * kBlock * kPitch;

      float scale[8][2];
      {
        float partial[8][4] = {};
#pragma unroll
        for (int c = 0; c < 2; ++c)
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const uint4 raw = load_shared16(key_bytes + at + i * 8 * kPitch + 64 * c);
            const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              uint32_t b0, b1;
              widen(words[j], b0, b1);
              multiply_add<__half>(partial[i], q.latent[4 * c + j], b0, b1);
            }
          }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          scale[i][0] = load_shared_float(even + at + i * 8 * kPitch + kValueWidth + 4 * warp);
          scale[i][1] = load_shared_float(odd + at + i * 8 * kPitch + kValueWidth + 4 * warp);
          const uint2 raw = load_shared8(key_rope + at + i * 8 * kPitch);
#pragma unroll
          for (int j = 0; j < 4; ++j) partial[i][j] *= scale[i][j & 1];
          multiply_add<__nv_bfloat16>(partial[i], q.rope, raw.x, raw.y);
          float* row = s.scores[warp] + g * kScorePitch + 8 * i + 2 * t;
          *reinterpret_cast<float2*>(row) = make_float2(partial[i][0], partial[i][1]);
          *reinterpret_cast<float2*>(row + 8 * kScorePitch) = make_float2(partial[i][2], partial[i][3]);
        }
      }
      named_sync(1, kFewMath);

      float x[8];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const uint32_t row = scores + (head * kScorePitch + 32 * c + 4 * part) * 4;
        const uint32_t mask = (c == 0 ? low_mask : high_mask) >> (4 * part);
        float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const uint4 raw = load_shared16(row + w * kFewRows * kScorePitch * 4);
          const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
          for (int j = 0; j < 4; ++j) total[j] += __uint_as_float(words[j]);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) x[4 * c + j] = mask >> j & 1 ? total[j] * q.unit : -INFINITY;
      }
      float most = x[0];
#pragma unroll
      for (int j = 1; j < 8; ++j) most = fmaxf(most, x[j]);
#pragma unroll
      for (int step = 1; step < 8; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
      top = fmaxf(top, most);
      const float next = top > reference + kLazy ? top : reference;
      const float factor = exp2_approx(reference - next);
      reference = next;
      sum *= factor;
      if (part == 0) s.factor[head] = factor;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float e[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          e[j] = exp2_approx(x[4 * c + j] - next);
          sum += e[j];
        }
        *reinterpret_cast<uint2*>(s.probabilities + head * kProbabilityPitch + 64 * c + 8 * part) =
            make_uint2(pack<__half>(e[0], e[1]), pack<__half>(e[2], e[3]));
      }
      named_sync(1, kFewMath);

      // Scales enter P in fp16, relative to a power of two that follows the largest of a block.
      float largest = 0.0f;
#pragma unroll
      for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fmaxf(scale[i][0], scale[i][1]));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      float moved = 1.0f;
      if (largest > unit * 16.0f || (largest < unit * 0.0625f && largest > 0x1p-100f)) {
        const float fresh = __uint_as_float(__float_as_uint(largest) & 0x7f800000u);
        moved = unit / fresh;
        unit = fresh;
      }
      const float inverse = 1.0f / unit;
      const float change[2] = {s.factor[g] * moved, s.factor[g + 8] * moved};
      if (__any_sync(~0u, change[0] != 1.0f || change[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < 16; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) o[i][j] *= change[j >> 1];
      }
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        uint32_t a[4];
        load_matrices(a, probabilities + ((lane & 7) + (lane & 8)) * kProbabilityPitch + (16 * step + (lane >> 4) * 8) * 2);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint32_t scales = pack<__half>(scale[2 * step + h][0] * inverse, scale[2 * step + h][1] * inverse);
          a[2 * h] = multiply_halves(a[2 * h], scales);
          a[2 * h + 1] = multiply_halves(a[2 * h + 1], scales);
        }
        uint4 raw[4];
        const uint32_t from = at + 16 * step * kPitch + 128 * warp + 16 * g;
        raw[0] = load_shared16(even + from);
        raw[1] = load_shared16(odd + from);
        raw[2] = load_shared16(even + from + 8 * kPitch);
        raw[3] = load_shared16(odd + from + 8 * kPitch);
        const auto word = [&](int i, int j) { return j == 0 ? raw[i].x : j == 1 ? raw[i].y : j == 2 ? raw[i].z : raw[i].w; };
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int k = 0; k < 2; ++k) {  // dims 16 g + 4 j + 2 k and the next, of two keys each
            const uint32_t selector = k == 0 ? 0x5140 : 0x7362;
            uint32_t b[2][2];
            widen(__byte_perm(word(0, j), word(1, j), selector), b[0][0], b[1][0]);
            widen(__byte_perm(word(2, j), word(3, j), selector), b[0][1], b[1][1]);
            multiply_add<__half>(o[4 * j + 2 * k], a, b[0][0], b[0][1]);
            multiply_add<__half>(o[4 * j + 2 * k + 1], a, b[1][0], b[1][1]);
          }
      }
      release_local(s.empty[stage]);
    }

#pragma unroll
    for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    const int row = item.group * kFewRows + head;
    const bool empty = top == -INFINITY;
    const float lse = empty ? -INFINITY : reference + log2f(sum);
    float inverse = empty ? 0.0f : 1.0f / sum;
    if (part == 0) {
      if (row < p.rows) {
        if (item.split < 0) {
          if (p.sink != nullptr && !empty) inverse = 1.0f / (sum + exp2f(p.sink[row] * 1.4426950408889634f - reference));
          p.lse[int64_t(item.query) * p.rows + row] = lse * p.lse_factor;
          if (p.max_logits != nullptr) p.max_logits[int64_t(item.query) * p.rows + row] = top * 0.6931471805599453f;
        } else {
          p.partial_lse[int64_t(item.split) * p.rows + row] = lse;
        }
      }
      s.inverse[head] = inverse;
    }
    named_sync(1, kFewMath);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = item.group * kFewRows + g + 8 * i;
      if (r >= p.rows) continue;
      const float factor = s.inverse[g + 8 * i] * unit;
      const int column = 128 * warp + 32 * t;  // of 32 in a row: 16 in the first of each pair of accumulators, 16 in the second
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (item.split < 0) {
          uint32_t v[8];
#pragma unroll
          for (int j = 0; j < 8; ++j)
            v[j] = pack<__nv_bfloat16>(o[2 * j][2 * i + k] * factor, o[2 * j + 1][2 * i + k] * factor);
          uint4* target = reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.out) +
                                                   (int64_t(item.query) * p.rows + r) * kValueWidth + column + 16 * k);
          target[0] = make_uint4(v[0], v[1], v[2], v[3]);
          target[1] = make_uint4(v[4], v[5], v[6], v[7]);
        } else {
          float4* target =
              reinterpret_cast<float4*>(p.partial_out + (int64_t(item.split) * p.rows + r) * kValueWidth + column + 16 * k);
#pragma unroll
          for (int j = 0; j < 4; ++j)
            target[j] = make_float4(o[2 * j][2 * i + k] * factor, o[2 * j + 1][2 * i + k] * factor,  // in the order of partial_column
                                    o[2 * j + 8][2 * i + k] * factor, o[2 * j + 9][2 * i + k] * factor);
        }
      }
    }
  }
}

template <int kStages>
__global__ void __launch_bounds__(kFewThreads, 2)
    flash_fwd_splitkv_mla_fp8_sparse_kernel_few_heads(const __grid_constant__ Problem problem) {
  extern __shared__ __align__(1024) uint8_t memory[];
  FewMemory<kStages>& s = *reinterpret_cast<FewMemory<kStages>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared_address(&s.full[i]), 2);
      barrier_init(shared_address(&s.empty[i]), 4);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (problem.parts != nullptr) asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
  if (threadIdx.x < kFewMath)
    few_math(problem, s);
  else
    few_producer(problem, s);
}

}  // namespace mla
