// The producer of FP8 keys: 656-byte records become bf16 in the swizzled tiles. In a pair, each CTA converts half of a block into its own
// tiles, and bulk copies take it from there to the peer's.
//
// e4m3 to bf16 is a shift of exponent and mantissa into place, which divides by 2^120, and one bf16x2 multiplication by the scale times
// 2^120: exact for power-of-two scales, subnormals included. Other scales, and those of 2^8 and more, go through fp32.
//
// A warp has 4 KB in flight while it converts the 4 KB before. More would not help: ptxas lets all loads of the loop share one scoreboard,
// and waiting for one is waiting for all. So a batch is waited for as a whole, and only then is the next one issued (see `arrived`). A
// register spilled in the loop would come back over the same scoreboard and undo it: look for LDL in the disassembly after a change here.
#pragma once

#include "gather.cuh"

namespace mla {

template <class C>
struct Dequantize {
  static_assert(C::kStorage == Storage::kFp8 && C::kLookup == Lookup::kIndices);
  static constexpr int kMathRegisters = 192, kProducerRegisters = 120;
  static constexpr int kWarpRows = C::kLocalRows / 4;  // rows of a block that a warp converts
  static constexpr int kParts = kWarpRows / 8;         // eight rows at a time
  static constexpr uint32_t kInvalid = ~0u;
  static constexpr bool kPush = C::kPair && !C::Order::kSeesaw;  // converted keys are stored to the peer, too, instead of copied

  static __device__ __forceinline__ Arrivals arrivals() {
    return {{4, 4 + 128}, 4, 128};  // rope arrives by asynchronous copies of all threads
  }

  // 4 KB in the registers of a warp: of a pair, all of 8 rows, alone, a half of 16 rows; eight rows of a half in either part. A lane
  // holds 16 bytes of rows 2 i + ((lane >> 2) & 1), so that its two 16-byte stores meet no bank conflict.
  struct Raw {
    uint4 bytes[2][4];
  };
  // Scales of a block's rows: a lane has that of row 8 part + lane / 4 and group lane % 4.
  struct Scales {
    float value[kParts];
  };

  static __device__ __forceinline__ void run(const Problem& p, SharedMemory& s, int cluster, int clusters, int rank) {
    run_items(p, s, typename C::Work(p, cluster, clusters), rank);
  }
  static __device__ __forceinline__ void run_items(const Problem& p, SharedMemory& s, typename C::Work item, int rank) {
    Dequantize me{p, s, rank};
    uint32_t q_phase = 0;
    for (; item.more(); item.next()) {
      if (item.begin >= item.end) continue;
      me.start(item);
      // The first item's queries are loaded by a math group.
      if (q_phase++ > 0) {
        barrier_wait(shared_address(&s.q_empty), q_phase & 1);
        load_queries<C>(p, s, item.query, (item.group * (C::kPair ? 2 : 1) + rank) * kRows, me.warp_);
      }
      if constexpr (C::Order::kSeesaw) {
        for (int block = item.begin; block < item.end; block += 2) {
          me.template fill<0>(item, block);
          if (block + 1 < item.end) me.template fill<1>(item, block + 1);
        }
      } else {
        int buffer = 0;
#pragma unroll 1
        for (int block = item.begin; block < item.end; ++block, buffer ^= 1) me.fill_rolled(item, block, buffer);
      }
    }
  }

 private:
  const Problem& p;
  SharedMemory& s;
  int rank_;
  int lane_, warp_;
  uint32_t phase_ = 0;
  Raw raw_[2];        // of even and odd blocks, or of left and right halves
  Scales scales_[2];  // of even and odd blocks
  uint32_t units_;    // of the present block's row

  __device__ __forceinline__ Dequantize(const Problem& problem, SharedMemory& shared, int rank)
      : p(problem), s(shared), rank_(rank), lane_(threadIdx.x & 31), warp_((threadIdx.x >> 5) & 3) {}

  // The column of this lane's row (lane modulo the rows of the warp), and of row 16 warp + lane modulo 16 of the whole block, for rope.
  __device__ __forceinline__ int column_of(int block) const {
    return block * kBlock + rank_ * C::kLocalRows + warp_ * kWarpRows + lane_ % kWarpRows;
  }
  __device__ __forceinline__ int rope_column_of(int block) const { return block * kBlock + warp_ * 16 + (lane_ & 15); }

  // Indices come by asynchronous copies, too: a register would have to be waited for, and with it, as scoreboards are few, the records
  // loaded since. Lanes 0-15 copy those of rows of `block`, lanes 16-31 of rope rows of `rope_block`.
  __device__ __forceinline__ void copy_indices(const typename C::Work& item, int block, int rope_block) const {
    const bool rope = lane_ >= 16;
    const int of = rope ? rope_block : block, column = rope ? rope_column_of(of) : column_of(of);
    const bool inside = of < item.end && column < item.keys;
    if (inside)
      copy4(shared_address(&s.indices[warp_][lane_]), p.keys.table + item.query * p.keys.table_stride + column);
    else
      *const_cast<volatile int32_t*>(&s.indices[warp_][lane_]) = -1;
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  // Where the record starts, in units of 16 bytes.
  __device__ __forceinline__ uint32_t units_of(int index) const {
    return p.keys.valid(index) ? static_cast<uint32_t>(p.keys.offset(index) >> 4) : kInvalid;
  }

  __device__ __forceinline__ void start(const typename C::Work& item) {
    copy_indices(item, item.begin + 1, item.begin);
    units_ = units_of(p.keys.fetch(item.query, column_of(item.begin), item.keys));
    load(raw_[0], units_, 0);
    load(scales_[0], units_);
    if constexpr (!C::Order::kSeesaw) prefetch<C::kPair ? 4 : 2, 6>(units_);
  }
  // Lines [kFirst, kEnd) of 128 bytes of this warp's records, into L2: rope, and what is loaded into registers later.
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void prefetch(uint32_t units) const {
#pragma unroll
    for (int i = 0; i < (kEnd - kFirst) * kWarpRows; i += 32) {
      const int at = i + lane_;
      const uint32_t start = __shfl_sync(~0u, units, at % kWarpRows);
      if (start != kInvalid && at < (kEnd - kFirst) * kWarpRows)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p.keys.latent + (uint64_t(start) << 4) + (kFirst + at / kWarpRows) * 128) : "memory");
    }
  }

  // Zero, available once `raw`, and so everything loaded before it, has arrived: a value that it is added to waits for them. ptxas would
  // fold a zero that it knows.
  __device__ __forceinline__ uint32_t arrived(const Raw& raw) const {
    uint32_t any = 0;
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) any |= raw.bytes[part][i].x;
    return any & p.keys.zero;
  }

  // One block into its buffer, while the next one is loaded.
  template <int kBuffer>
  __device__ __forceinline__ void fill(const typename C::Work& item, int block) {
    const uint32_t parity = (phase_ >> kBuffer & 1) ^ 1;
    phase_ ^= 1u << kBuffer;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    const volatile int32_t* indices = s.indices[warp_];
    uint32_t next = units_of(indices[lane_ % kWarpRows]);
    const uint32_t rope_units = units_of(indices[16 + (lane_ & 15)]);
    __syncwarp();
    copy_indices(item, block + 2, block + 1);
    const uint32_t tiles = shared_address(s.k[kBuffer]) + (rank_ * C::kLocalRows + warp_ * kWarpRows) * 128;
    const Scales& scales = scales_[kBuffer];
    if constexpr (C::kPair) {
      next += arrived(raw_[kBuffer]);
      load(raw_[kBuffer ^ 1], next, 0);
      load(scales_[kBuffer ^ 1], next);
    } else {
      load(raw_[1], units_ + arrived(raw_[0]), 1);
    }
    bool simple = true;  // powers of two, below the 2^8 that would overflow when multiplied by 2^120
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      simple &= (__float_as_uint(scales.value[part]) & 0x7fffffu) == 0 && scales.value[part] < 256.0f;
    simple = __all_sync(~0u, simple);
    // Alone, a register is short: both parts' factors share one, and other scales are loaded again.
    const uint32_t factors = pack<__nv_bfloat16>(scales.value[0] * 0x1p120f, scales.value[kParts - 1] * 0x1p120f);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!C::kPair && half == 1) {
        next += arrived(raw_[1]);
        load(raw_[0], next, 0);
        load(scales_[kBuffer ^ 1], next);
      }
      const uint32_t full = shared_address(&s.full[kBuffer][half]);
      barrier_wait(shared_address(&s.empty[kBuffer][half]), parity);
      if (half == 1) {
        copy_rope(shared_address(s.k[kBuffer]) + 8 * kTile + warp_ * 16 * 128, rope_units);
        barrier_arrive_after_copies(shared_address(&s.full[kBuffer][1]));
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const auto& bytes = C::kPair ? raw_[kBuffer].bytes[half] : raw_[half].bytes[part];
        if (simple) {
          convert<true>(bytes, factors, part, tiles + part * 1024, half, full);
        } else {
          float scale = scales.value[part];
          if (kParts > 1) {
            const uint32_t start = __shfl_sync(~0u, units_, part * 8 + lane_ / 4);
            scale = start == kInvalid ? 0.0f : scale_at(start);
          }
          convert<false>(bytes, __float_as_uint(scale), 0, tiles + part * 1024, half, full);
        }
      }
      const uint32_t flags = __ballot_sync(~0u, rope_units != kInvalid);
      if (half == 1 && lane_ == 0) {
        reinterpret_cast<volatile uint16_t*>(&s.mask[kBuffer])[warp_] = static_cast<uint16_t>(flags);
        barrier_arrive(shared_address(&s.mask_full[kBuffer]));
      }
      announce(kBuffer, half);
    }
    units_ = next;
  }

  // The same in a third of the code, for parts of few blocks: what has arrived moves to registers of its own, so that one copy of the code
  // serves both buffers. In the seesaw, with many blocks, it takes 7 % more time.
  __device__ __forceinline__ void fill_rolled(const typename C::Work& item, int block, int buffer) {
    const uint32_t parity = (phase_ >> buffer & 1) ^ 1;
    phase_ ^= 1u << buffer;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    const volatile int32_t* indices = s.indices[warp_];
    uint32_t next = units_of(indices[lane_ % kWarpRows]);
    const uint32_t rope_units = units_of(indices[16 + (lane_ & 15)]);
    __syncwarp();
    copy_indices(item, block + 2, block + 1);
    const uint32_t tiles = shared_address(s.k[0]) + buffer * (kTiles * kTile) + (rank_ * C::kLocalRows + warp_ * kWarpRows) * 128;
    const uint32_t ready = arrived(raw_[0]);
    Raw raw = raw_[0];
    const Scales scales = scales_[0];
    if constexpr (C::kPair) {
      next += ready;
      load(raw_[0], next, 0);
      load(scales_[0], next);
      prefetch<4, 6>(next);
    } else {
      load(raw_[0], units_ + ready, 1);
      prefetch<0, 6>(next);
    }
    bool simple = true;  // powers of two, below the 2^8 that would overflow when multiplied by 2^120
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      simple &= (__float_as_uint(scales.value[part]) & 0x7fffffu) == 0 && scales.value[part] < 256.0f;
    simple = __all_sync(~0u, simple);
    // Alone, a register is short: both parts' factors share one, and other scales are loaded again.
    const uint32_t factors = pack<__nv_bfloat16>(scales.value[0] * 0x1p120f, scales.value[kParts - 1] * 0x1p120f);
    const uint32_t factor = C::kPair && !simple ? __float_as_uint(scales.value[0]) : factors;
    const auto fill_half = [&](int half) {
      const uint32_t full = shared_address(&s.full[buffer][half]);
      barrier_wait(shared_address(&s.empty[buffer][half]), parity);
      if (half == 1) {
        copy_rope(shared_address(s.k[0]) + buffer * (kTiles * kTile) + 8 * kTile + warp_ * 16 * 128, rope_units);
        barrier_arrive_after_copies(shared_address(&s.full[buffer][1]));
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const auto& bytes = raw.bytes[part];
        if (simple) {
          convert<true>(bytes, factor, part, tiles + part * 1024, half, full);
        } else {
          uint32_t scale = factor;
          if (kParts > 1) {
            const uint32_t start = __shfl_sync(~0u, units_, part * 8 + lane_ / 4);
            scale = __float_as_uint(start == kInvalid ? 0.0f : scale_at(start));
          }
          convert<false>(bytes, scale, 0, tiles + part * 1024, half, full);
        }
      }
      const uint32_t flags = __ballot_sync(~0u, rope_units != kInvalid);
      if (half == 1 && lane_ == 0) {
        reinterpret_cast<volatile uint16_t*>(&s.mask[buffer])[warp_] = static_cast<uint16_t>(flags);
        barrier_arrive(shared_address(&s.mask_full[buffer]));
      }
      announce(buffer, half);
    };
    if constexpr (C::kPair) {
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        if (half == 1)
#pragma unroll
          for (int i = 0; i < 4; ++i) raw.bytes[0][i] = raw.bytes[1][i];
        fill_half(half);
      }
    } else {
      fill_half(0);
      next += arrived(raw_[0]);
      raw = raw_[0];
      load(raw_[0], next, 0);
      load(scales_[0], next);
      fill_half(1);
    }
    units_ = next;
  }

  // Both halves of eight rows, or one half of sixteen.
  __device__ __forceinline__ void load(Raw& raw, uint32_t units, int half) const {
    const int piece = (lane_ & 3) | (lane_ >> 3) << 2;
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 2 * i + ((lane_ >> 2) & 1) + (C::kPair ? 0 : 8 * part);
        const uint32_t start = __shfl_sync(~0u, units, row);
        uint4& bytes = raw.bytes[part][i];
        bytes = make_uint4(0, 0, 0, 0);
        if (start != kInvalid)
          bytes = load_once(p.keys.latent + (uint64_t(start) << 4) + (C::kPair ? part : half) * 256 + piece * 16);
      }
  }
  __device__ __forceinline__ void load(Scales& scales, uint32_t units) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint32_t start = __shfl_sync(~0u, units, part * 8 + lane_ / 4);
      scales.value[part] = 0.0f;
      if (start != kInvalid) scales.value[part] = scale_at(start);
    }
  }
  // Of group lane % 4 of the record that starts there.
  __device__ __forceinline__ float scale_at(uint32_t start) const {
    return __ldg(reinterpret_cast<const float*>(p.keys.latent + (uint64_t(start) << 4) + kValueWidth) + (lane_ & 3));
  }

  // 16 bytes into the peer's tile, which complete on its barrier.
  static __device__ __forceinline__ void push16(uint32_t remote, uint32_t remote_barrier, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(remote), "r"(a), "r"(b),
                 "r"(c), "r"(d), "r"(remote_barrier)
                 : "memory");
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

  // Eight rows of a half; `tiles` is where they start in the buffer. `scale` is fp32, or bf16 times 2^120: `part` says which of two.
  template <bool kSimple>
  __device__ __forceinline__ void convert(const uint4 (&bytes)[4], uint32_t scale, int part, uint32_t tiles, int half,
                                          uint32_t full) const {
    const int lane = C::kPair && !kPush ? lane_ : opaque(lane_), piece = (lane & 3) | (lane >> 3) << 2, odd = (lane >> 2) & 1;
    // Line 2 i + odd, chunks 2 a and 2 a + 1 where a = piece & 3, under the swizzle.
    const uint32_t root = opaque(tiles + (half * kLeftTiles + (piece >> 2)) * kTile + odd * 144 + (piece & 3) * 32);
    const uint32_t peer_root = kPush ? peer_address(root, rank_ ^ 1) : 0, peer_full = kPush ? peer_address(full, rank_ ^ 1) : 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int holder = (2 * i + odd) * 4 + half * 2 + (piece >> 3);
      const uint32_t words[4] = {bytes[i].x, bytes[i].y, bytes[i].z, bytes[i].w};
      uint32_t both = __shfl_sync(~0u, scale, holder);
      if (kSimple && kParts == 2) both = __byte_perm(both, 0, part == 0 ? 0x1010 : 0x3232);
      uint32_t v[8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t low = place(words[j], 0x1404), high = place(words[j], 0x3424);
        v[2 * j] = kSimple ? multiply(low, both) : scale_in_fp32(low, __uint_as_float(both));
        v[2 * j + 1] = kSimple ? multiply(high, both) : scale_in_fp32(high, __uint_as_float(both));
      }
      const uint32_t first = (root ^ 32 * i) + 256 * i, second = first ^ 16;
      store_shared16(first, v[0], v[1], v[2], v[3]);
      store_shared16(second, v[4], v[5], v[6], v[7]);
      if constexpr (kPush) {
        push16((peer_root ^ 32 * i) + 256 * i, peer_full, v[0], v[1], v[2], v[3]);
        push16(((peer_root ^ 32 * i) + 256 * i) ^ 16, peer_full, v[4], v[5], v[6], v[7]);
      }
    }
  }
  __device__ __forceinline__ void copy_rope(uint32_t tile, uint32_t units) const {
    const int lane = C::Order::kSeesaw ? lane_ : opaque(lane_);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int line = 4 * i + (lane >> 3);
      const uint32_t start = __shfl_sync(~0u, units, line);
      const bool valid = start != kInvalid;
      copy16<kEvictLast>(opaque(tile + line * 128 + (((lane & 7) ^ (line & 7)) << 4)),
                         p.keys.latent + (valid ? uint64_t(start) << 4 : 0) + kValueWidth + 16 + (lane & 7) * 16, valid ? 16 : 0);
    }
  }

  // The fence compiles to a MEMBAR, too, which may wait for the next block's records: docs/attention-log.md, what is in the way.
  //
  // This warp's rows of a half are complete here; in a pair they are sent to the peer, and as many are on their way from it. The copy reads
  // them as the asynchronous proxy, which takes a fence first; alone, the math groups' fences after their waits will do.
  __device__ __forceinline__ void announce(int buffer, int half) const {
    const uint32_t full = shared_address(&s.full[buffer][half]);
    constexpr uint32_t kBytes = kWarpRows * 128;  // of a tile
    if constexpr (kPush) {
      __syncwarp();
      if (lane_ == 0) barrier_arrive_expect(full, kLeftTiles * kBytes);
    } else if constexpr (C::kPair) {
      fence_async_proxy();
      __syncwarp();
      if (lane_ < kLeftTiles) {
        const uint32_t from = shared_address(s.k[buffer]) + (rank_ * C::kLocalRows + warp_ * kWarpRows) * 128 +
                              (half * kLeftTiles + lane_) * kTile;
        copy_bulk_peer(peer_address(from, rank_ ^ 1), from, kBytes, peer_address(full, rank_ ^ 1));
      }
      if (lane_ == 0) barrier_arrive_expect(full, kLeftTiles * kBytes);
    } else {
      __syncwarp();
      if (lane_ == 0) barrier_arrive(full);
    }
    __syncwarp();
  }
};

}  // namespace mla
