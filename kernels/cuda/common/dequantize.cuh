// The producer of FP8 keys: 656-byte records become bf16 in the swizzled tiles. In a pair, each CTA converts half of a block and
// pushes it to the other.
//
// e4m3 to bf16 is a shift of exponent and mantissa into place, which divides by 2^120, and one bf16x2 multiplication by the scale times
// 2^120: exact for power-of-two scales, subnormals included. Other scales, and those of 2^8 and more, go through fp32.
#pragma once

#include "gather.cuh"

namespace mla {

template <class C>
struct Dequantize {
  static_assert(C::kStorage == Storage::kFp8 && C::kLookup == Lookup::kIndices);
  static constexpr int kMathRegisters = 208, kProducerRegisters = 88;
  static constexpr int kWarpRows = C::kLocalRows / 4;  // rows of a block that a warp converts
  static constexpr int kParts = kWarpRows / 8;         // eight rows at a time
  static constexpr uint32_t kInvalid = ~0u;

  static __device__ __forceinline__ Arrivals arrivals() {
    return {{4, 4 + 128}, 4, 128};  // rope arrives by asynchronous copies of all threads
  }

  // 8 rows x 256 bytes in the registers of a warp: a lane holds 16 bytes of rows 2 i + ((lane >> 2) & 1), so that its two 16-byte
  // stores meet no bank conflict.
  struct Raw {
    uint4 bytes[4];
    float scale[4];
  };

  static __device__ __forceinline__ void run(const Problem& p, SharedMemory& s, int cluster, int clusters, int rank) {
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    uint32_t phase = 0, q_phase = 0;
    for (Items<C::kLookup> item(p, cluster, clusters); item.more(); item.next()) {
      if (item.begin >= item.end) continue;
      uint32_t units, next = look_up(p, item, item.begin, rank, warp, lane);
      uint32_t sixteen = look_up_sixteen(p, item, item.begin, warp, lane);
      Raw a, b;
      load(p, a, next, 0, 0);
      barrier_wait(shared_address(&s.q_empty), q_phase ^ 1);
      q_phase ^= 1;
      load_queries<C, 4>(p, s, item.query, (item.group * (C::kPair ? 2 : 1) + rank) * kRows, warp);
      for (int block = item.begin; block < item.end; ++block) {
        const int buffer = (block - item.begin) & 1;
        const uint32_t parity = (phase >> buffer & 1) ^ 1;
        phase ^= 1u << buffer;
        units = next;
        // Masks and rope of rows 16 warp ... + 15, whoever converts them.
        const uint32_t these = C::kPair ? sixteen : units;
        const uint32_t flags = __ballot_sync(~0u, these != kInvalid);
        if (block + 1 < item.end) {
          next = look_up(p, item, block + 1, rank, warp, lane);
          if constexpr (C::kPair) sixteen = look_up_sixteen(p, item, block + 1, warp, lane);
        }
        const uint32_t tiles = shared_address(s.k[buffer]) + (rank * C::kLocalRows + warp * kWarpRows) * 128;
        const uint32_t rope = shared_address(s.k[buffer]) + 8 * kTile + warp * 16 * 128;
        if constexpr (kParts == 1) {
          load(p, b, units, 0, 1);
          barrier_wait(shared_address(&s.empty[buffer][0]), parity);
          convert(a, tiles, 0);
          announce(s, buffer, 0, tiles, rank);
          if (block + 1 < item.end) load(p, a, next, 0, 0);
          barrier_wait(shared_address(&s.empty[buffer][1]), parity);
          copy_rope(p, rope, these);
          barrier_arrive_after_copies(shared_address(&s.full[buffer][1]));
          convert(b, tiles, 1);
        } else {
          load(p, b, units, 1, 0);
          barrier_wait(shared_address(&s.empty[buffer][0]), parity);
          convert(a, tiles, 0);
          load(p, a, units, 0, 1);
          convert(b, tiles + 1024, 0);
          announce(s, buffer, 0, tiles, rank);
          load(p, b, units, 1, 1);
          barrier_wait(shared_address(&s.empty[buffer][1]), parity);
          copy_rope(p, rope, these);
          barrier_arrive_after_copies(shared_address(&s.full[buffer][1]));
          convert(a, tiles, 1);
          if (block + 1 < item.end) load(p, a, next, 0, 0);
          convert(b, tiles + 1024, 1);
        }
        if (lane == 0) {
          reinterpret_cast<volatile uint16_t*>(&s.mask[buffer])[warp] = static_cast<uint16_t>(flags);
          barrier_arrive(shared_address(&s.mask_full[buffer]));
        }
        announce(s, buffer, 1, tiles, rank);
      }
    }
  }

 private:
  // Where this lane's row (lane modulo the rows of the warp) starts, in units of 16 bytes.
  static __device__ __forceinline__ uint32_t look_up(const Problem& p, const Items<C::kLookup>& item, int block, int rank, int warp,
                                                     int lane) {
    const int column = block * kBlock + rank * C::kLocalRows + warp * kWarpRows + lane % kWarpRows;
    const int slot = p.keys.template slot<C::kLookup>(item.query, column, item.keys);
    return slot < 0 ? kInvalid : static_cast<uint32_t>(p.keys.offset(slot) >> 4);
  }

  // Row 16 warp + lane modulo 16 of the whole block.
  static __device__ __forceinline__ uint32_t look_up_sixteen(const Problem& p, const Items<C::kLookup>& item, int block, int warp,
                                                             int lane) {
    if constexpr (!C::kPair) return kInvalid;
    const int slot = p.keys.template slot<C::kLookup>(item.query, block * kBlock + warp * 16 + (lane & 15), item.keys);
    return slot < 0 ? kInvalid : static_cast<uint32_t>(p.keys.offset(slot) >> 4);
  }

  static __device__ __forceinline__ void load(const Problem& p, Raw& raw, uint32_t units, int part, int half) {
    const int lane = threadIdx.x & 31, piece = (lane & 3) | (lane >> 3) << 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t start = __shfl_sync(~0u, units, part * 8 + 2 * i + ((lane >> 2) & 1));
      raw.bytes[i] = make_uint4(0, 0, 0, 0);
      raw.scale[i] = 0.0f;
      if (start != kInvalid) {
        const uint8_t* record = p.keys.latent + (uint64_t(start) << 4);
        raw.bytes[i] = load_once(record + half * 256 + piece * 16);
        raw.scale[i] = __ldg(reinterpret_cast<const float*>(record + kValueWidth) + half * 2 + (piece >> 3));
      }
    }
  }

  static __device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
  }
  static __device__ __forceinline__ uint32_t place(uint32_t word, uint32_t selector) {
    const uint32_t spread = __byte_perm(word, 0, selector);  // a byte in the upper half of each 16 bits
    return (spread & 0x80008000u) | (spread >> 4 & 0x07f007f0u);
  }

  // Any fp32 scale, with one rounding: e4m3 values are exact in bf16, whose upper and lower halves are floats' upper words.
  static __device__ __forceinline__ uint32_t scale_in_fp32(uint32_t placed, float scale) {
    const uint32_t exact = multiply(placed, 0x7b807b80u);  // 2^120
    return pack<__nv_bfloat16>(__uint_as_float(exact << 16) * scale, __uint_as_float(exact & 0xffff0000u) * scale);
  }

  template <bool kSimple>
  static __device__ __forceinline__ void convert_as(const Raw& raw, uint32_t tiles, int half) {
    const int lane = threadIdx.x & 31, piece = (lane & 3) | (lane >> 3) << 2, odd = (lane >> 2) & 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int line = 2 * i + odd;
      const uint32_t words[4] = {raw.bytes[i].x, raw.bytes[i].y, raw.bytes[i].z, raw.bytes[i].w};
      const float factor = raw.scale[i] * 0x1p120f;
      const uint32_t scale = pack<__nv_bfloat16>(factor, factor);
      uint32_t v[8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t low = place(words[j], 0x1404), high = place(words[j], 0x3424);
        v[2 * j] = kSimple ? multiply(low, scale) : scale_in_fp32(low, raw.scale[i]);
        v[2 * j + 1] = kSimple ? multiply(high, scale) : scale_in_fp32(high, raw.scale[i]);
      }
      const uint32_t target = tiles + (half * kLeftTiles + (piece >> 2)) * kTile + line * 128;
      const int chunk = 2 * (piece & 3);
      store_shared16(target + ((chunk ^ line) << 4), v[0], v[1], v[2], v[3]);
      store_shared16(target + (((chunk + 1) ^ line) << 4), v[4], v[5], v[6], v[7]);
    }
  }
  static __device__ __forceinline__ void convert(const Raw& raw, uint32_t tiles, int half) {
    bool simple = true;  // powers of two, below the 2^8 that would overflow when multiplied by 2^120
#pragma unroll
    for (int i = 0; i < 4; ++i) simple &= (__float_as_uint(raw.scale[i]) & 0x7fffffu) == 0 && raw.scale[i] < 256.0f;
    if (__all_sync(~0u, simple))
      convert_as<true>(raw, tiles, half);
    else
      convert_as<false>(raw, tiles, half);
  }

  static __device__ __forceinline__ void copy_rope(const Problem& p, uint32_t tile, uint32_t units) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int line = 4 * i + (lane >> 3);
      const uint32_t start = __shfl_sync(~0u, units, line);
      const bool valid = start != kInvalid;
      copy16<kEvictLast>(opaque(tile + line * 128 + (((lane & 7) ^ (line & 7)) << 4)),
                         p.keys.latent + (valid ? uint64_t(start) << 4 : 0) + kValueWidth + 16 + (lane & 7) * 16, valid ? 16 : 0);
    }
  }

  // This warp's rows of a half are complete.
  static __device__ __forceinline__ void announce(SharedMemory& s, int buffer, int half, uint32_t tiles, int rank) {
    const int lane = threadIdx.x & 31;
    const uint32_t full = shared_address(&s.full[buffer][half]);
    // Alone, the math groups' fences after their waits suffice: one here would wait for this warp's next loads, too.
    if constexpr (C::kPair) fence_async_proxy();
    __syncwarp();
    if constexpr (C::kPair) {
      if (lane == 0) barrier_arrive_expect(full, 4 * kWarpRows * 128);
      if (lane < 4) {
        const uint32_t from = tiles + (half * kLeftTiles + lane) * kTile;
        push_to_peer(peer_address(from, rank ^ 1), from, kWarpRows * 128, peer_address(full, rank ^ 1));
      }
      __syncwarp();
    } else {
      if (lane == 0) barrier_arrive(full);
    }
  }
};

}  // namespace mla
