// The sum of every rank's part, with or without the norm that follows, by GPUs that write into each other's memory: each rank leaves its part
// in the inboxes of the others, and adds the parts that it finds in its own. A packet of eight bytes holds four of data and the number of the
// call, and is written at once, as in NCCL's LL protocol, so that no other signal is needed.
//
// A rank is at most one call ahead of another, whose part it needs to end a call. So two places for a part are enough, which calls use in
// turns. Each CTA counts its own calls, because its pieces have places of their own, whatever the size of a sum.

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "../common/normed_rows.cuh"
#include "../common/pdl.cuh"

namespace all_reduce {

using namespace common;

constexpr int kThreads = 256;      // a piece of 16 bytes each
constexpr int kNormThreads = 512;  // at most: of 16 columns each

struct Sum {
  const uint4* x;
  uint4* out;
  const int64_t* inboxes;  // [size]: the addresses of all ranks' inboxes on this GPU, [source, 2, slot_bytes] each
  uint32_t* calls;         // [CTAs]: how many calls each has ended
  int64_t slot_bytes;
  uint64_t longest_wait;  // for another rank, in nanoseconds
  int pieces, rank, size;
};

__device__ __forceinline__ void send(uint8_t* to, uint32_t first, uint32_t second, uint32_t call) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %3, %2, %3};" ::"l"(to), "r"(first), "r"(second), "r"(call) : "memory");
}
__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
__device__ __forceinline__ bool receive(uint2& data, const uint8_t* from, uint32_t call) {
  uint32_t sign, other_sign;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(data.x), "=r"(sign), "=r"(data.y), "=r"(other_sign)
               : "l"(from)
               : "memory");
  return sign == call && other_sign == call;
}
// The 16 bytes of a piece. A rank that waits for longer than `most` nanoseconds ends its kernel with an error: the other one hangs.
__device__ __forceinline__ uint4 receive_piece(const uint8_t* from, uint32_t call, uint64_t most) {
  constexpr uint32_t kLooks = 4096;  // between two looks at the clock
  uint2 low, high;
  uint64_t began = 0;
  uint32_t looks = 0;
  while (!(receive(low, from, call) & receive(high, from + 16, call))) {
    if (++looks % kLooks != 0) continue;
    const uint64_t now = nanoseconds();
    if (began == 0) began = now;
    if (now - began > most) asm volatile("trap;");
  }
  return {low.x, low.y, high.x, high.y};
}

// Adds a word to sums in fp32: two bf16 numbers, or one float.
template <class Element>
__device__ __forceinline__ void add(float (&sums)[2], uint32_t word) {
  if constexpr (std::is_same_v<Element, float>)
    sums[0] += __uint_as_float(word);
  else
    sums[0] += __uint_as_float(word << 16), sums[1] += __uint_as_float(word & 0xFFFF0000u);
}
template <class Element>
__device__ __forceinline__ uint32_t rounded(const float (&sums)[2]) {
  if constexpr (std::is_same_v<Element, float>) return __float_as_uint(sums[0]);
  return pack<__nv_bfloat16>(sums[0], sums[1]);
}

// Where the part of rank `source` lies in the inbox of rank `owner`: 32 bytes for the 16 of a piece.
__device__ __forceinline__ uint8_t* place_of(const Sum& p, int owner, int source, uint32_t call, int64_t piece) {
  return reinterpret_cast<uint8_t*>(p.inboxes[owner]) + (source * 2 + call % 2) * p.slot_bytes + piece * 32;
}
// Leaves this rank's 16 bytes of a piece in the inboxes of the others.
__device__ __forceinline__ void send_piece(const Sum& p, const uint4& own, uint32_t call, int64_t piece) {
  for (int step = 1; step < p.size; ++step) {
    uint8_t* to = place_of(p, (p.rank + step) % p.size, p.rank, call, piece);
    send(to, own.x, own.y, call), send(to + 16, own.z, own.w, call);
  }
}
// Waits for the others' parts of a piece, and adds all ranks' up: in the order of ranks, in fp32, rounded once, so that all ranks get the same
// bits.
template <class Element>
__device__ __forceinline__ uint4 sum_piece(const Sum& p, const uint4& own, uint32_t call, int64_t piece) {
  float sums[4][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i][0] = sums[i][1] = -0.0f;  // -0 changes no sum, not even that of -0
  for (int source = 0; source < p.size; ++source) {
    uint4 part = own;
    if (source != p.rank) part = receive_piece(place_of(p, p.rank, source, call, piece), call, p.longest_wait);
    add<Element>(sums[0], part.x), add<Element>(sums[1], part.y), add<Element>(sums[2], part.z), add<Element>(sums[3], part.w);
  }
  return {rounded<Element>(sums[0]), rounded<Element>(sums[1]), rounded<Element>(sums[2]), rounded<Element>(sums[3])};
}

template <class Element>
__global__ void __launch_bounds__(kThreads) all_reduce_kernel(Sum p) {
  common::pdl_launch_dependents();
  const int piece = blockIdx.x * kThreads + threadIdx.x;
  common::pdl_wait();
  const uint32_t call = __ldcg(p.calls + blockIdx.x) + 1;
  if (piece < p.pieces) {
    const uint4 own = p.x[piece];
    send_piece(p, own, call, piece);
    p.out[piece] = sum_piece<Element>(p, own, call, piece);
  }
  __syncthreads();  // all threads have read the number of calls
  if (threadIdx.x == 0) p.calls[blockIdx.x] = call;
}

struct SummedNorm {
  Sum sum;  // of bf16 [tokens, width]; its `out` is not used, and its calls are one for each token
  common::NormedRows rows;
};

// The sum, the residual stream, and the norm with its FP8 operand. A CTA takes a token.
__global__ void __launch_bounds__(kNormThreads) all_reduce_norm_kernel(SummedNorm p) {
  __shared__ float sums[kNormThreads / 32];
  pdl_launch_dependents();
  const int64_t token = blockIdx.x;
  const int lane = threadIdx.x % 32, column = column_of(threadIdx.x / kGroupLanes, lane);
  if (!p.rows.static_gain) pdl_wait();
  float gain[kHeldOfGroup];
  load_gain(gain, p.rows.gain + column);
  pdl_wait();
  const uint32_t call = __ldcg(p.sum.calls + token) + 1;
  const int64_t first = token * p.rows.width + column;
  uint4 own[kPieces], stream[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) own[i] = p.sum.x[(first + i * kApart) / kPiece];
  p.rows.load_residual(stream, token, column);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) send_piece(p.sum, own[i], call, (first + i * kApart) / kPiece);
  float values[kHeldOfGroup];
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    unpack8(values + i * kPiece, sum_piece<__nv_bfloat16>(p.sum, own[i], call, (first + i * kApart) / kPiece));
  float squares = sum_of_lanes(p.rows.add(values, stream, token, column));
  if (lane == 0) sums[threadIdx.x / 32] = squares;
  __syncthreads();
  if (threadIdx.x == 0) p.sum.calls[token] = call;  // all threads have read it
  squares = 0.0f;
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) squares += sums[w];
  p.rows.norm(values, gain, squares, token, column, lane);
}

int64_t bytes_of(const TensorView& x) {
  int64_t elements = 1;
  for (int i = 0; i < x.ndim(); ++i) elements *= x.size(i);
  return elements * x.dtype().bits / 8;
}

Sum sum_of(TensorView x, TensorView inboxes, TensorView calls, int64_t slot_bytes, int64_t rank, int64_t longest_wait, int64_t ctas) {
  const int64_t bytes = bytes_of(x);
  if (bytes % 16 != 0 || 2 * bytes > slot_bytes || ctas > calls.size(0))
    TVM_FFI_THROW(ValueError) << "x has " << bytes << " bytes; expected a multiple of 16, at most " << slot_bytes / 2;
  Sum p = {};
  p.x = data<uint4>(x);
  p.inboxes = data<int64_t>(inboxes);
  p.calls = data<uint32_t>(calls);
  p.slot_bytes = slot_bytes;
  p.longest_wait = static_cast<uint64_t>(longest_wait);
  p.pieces = static_cast<int>(bytes / 16);
  p.rank = static_cast<int>(rank);
  p.size = static_cast<int>(inboxes.size(0));
  return p;
}

// x and out of one shape in bf16 or fp32, contiguous and a multiple of 16 bytes; inboxes int64 [size], the addresses of all ranks' inboxes of
// [size, 2, slot_bytes] bytes each; calls int32, one for every 4096 bytes of x. slot_bytes is at least twice the bytes of x. All ranks call it
// with the same shapes, in the same order. A rank that waits for another one for more than longest_wait nanoseconds ends with an error.
void all_reduce(TensorView x, TensorView out, TensorView inboxes, TensorView calls, int64_t slot_bytes, int64_t rank,
                int64_t longest_wait) {
  DeviceGuard guard(x);
  const int64_t ctas = (bytes_of(x) / 16 + kThreads - 1) / kThreads;
  Sum p = sum_of(x, inboxes, calls, slot_bytes, rank, longest_wait, ctas);
  p.out = data<uint4>(out);
  const auto kernel = x.dtype().code == kDLBfloat ? all_reduce_kernel<__nv_bfloat16> : all_reduce_kernel<float>;
  common::launch_pdl(kernel, dim3(static_cast<unsigned>(ctas)), kThreads, 0, stream_of(x), p);
}

// The sum of x bf16 [T, D], plus residual [T, D], normed with weight fp32 [D] -> total, normed [T, D], codes e4m3 (as bytes) [T, D], scales
// fp32 [T, D / 128]. D is a multiple of 512 up to 8192 and the same in all calls with these inboxes and calls int32, one for each token; all
// rows start on 16-byte boundaries.
void all_reduce_norm(TensorView x, TensorView inboxes, TensorView calls, int64_t slot_bytes, int64_t rank, int64_t longest_wait,
                     TensorView residual, TensorView weight, TensorView total, TensorView normed, TensorView codes, TensorView scales,
                     double eps, bool ue8m0, bool static_gain) {
  DeviceGuard guard(x);
  const SummedNorm p = {sum_of(x, inboxes, calls, slot_bytes, rank, longest_wait, x.size(0)),
                        common::normed_rows_of(residual, weight, total, normed, codes, scales, eps, ue8m0, static_gain)};
  common::launch_pdl(all_reduce_norm_kernel, dim3(static_cast<unsigned>(x.size(0))), p.rows.width / common::kHeldOfGroup, 0, stream_of(x), p);
}

}  // namespace all_reduce

TVM_FFI_DLL_EXPORT_TYPED_FUNC(all_reduce, all_reduce::all_reduce);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(all_reduce_norm, all_reduce::all_reduce_norm);
