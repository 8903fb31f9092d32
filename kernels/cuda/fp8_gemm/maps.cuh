// Tensor maps: what the TMA needs to know of the operands and results of a product. Host side.
#pragma once

#include <cudaTypedefs.h>

#include "../common/launch.cuh"
#include "product.cuh"

namespace gemm {

using common::check;
using common::data;
using tvm::ffi::TensorView;

// The driver's encoder of tensor maps, looked up at run time so that linking needs no libcuda.
inline PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result), "driver");
    if (result != cudaDriverEntryPointSuccess) TVM_FFI_THROW(RuntimeError) << "the driver has no cuTensorMapEncodeTiled";
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  return found;
}

// Tensor map of bytes [experts, rows, k] under the 128-byte swizzle, in boxes of 128 columns. Elements outside read as zero.
inline CUtensorMap map_of(const TensorView& tensor, int box_rows) {
  const int rank = tensor.ndim();
  CUtensorMap map;
  cuuint64_t sizes[3], strides[2];
  for (int i = 0; i < rank; ++i) sizes[i] = static_cast<cuuint64_t>(tensor.size(rank - 1 - i));
  for (int i = 0; i + 1 < rank; ++i) strides[i] = static_cast<cuuint64_t>(tensor.stride(rank - 2 - i));
  const cuuint32_t box[3] = {kSlice, static_cast<cuuint32_t>(box_rows), 1}, steps[3] = {1, 1, 1};
  const CUresult code =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, rank, data<void>(tensor), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "tensor map: CUDA driver error " << int(code);
  return map;
}

// Tensor map of results [rows, n] in boxes of 16 rows.
inline CUtensorMap out_map_of(const Product& p, int box) {
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(p.n), static_cast<cuuint64_t>(p.rows)}, strides[1] = {sizes[0] * 2};
  const cuuint32_t boxes[2] = {static_cast<cuuint32_t>(box), 16}, steps[2] = {1, 1};
  const CUtensorMapSwizzle swizzle = box == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : box == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                 : CU_TENSOR_MAP_SWIZZLE_32B;
  const CUresult code = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p.out, sizes, strides, boxes, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "tensor map of results: CUDA driver error " << int(code);
  return map;
}

}  // namespace gemm
