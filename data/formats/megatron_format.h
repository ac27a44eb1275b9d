#pragma once
// Megatron-LM indexed datasets (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py). .idx: 9 bytes
// "MMIDIDX\0\0", u64 version 1, u8 dtype code (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16), u64 sequence
// count S, u64 document bound count D; int32 length[S], int64 byte offset[S], int64 bound[D] (0 first, S last: document
// d is sequences bound[d] .. bound[d+1]-1); multimodal: int8 mode[S]. .bin: tokens. Sequences must be contiguous and in
// order, as in all of Megatron's writers.

#include "data/formats/token_layout.h"

namespace quench {

// Read in blocks; 8 bytes of memory per document. Throws corrupt or unsupported, naming the entry, for values
// inconsistent with the file sizes, before allocation.
[[nodiscard]] TokenLayout read_megatron_layout(const BinaryFile& index, const BinaryFile& tokens);

}  // namespace quench
