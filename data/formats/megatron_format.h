#pragma once
// Megatron-LM indexed datasets (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py). .idx file: 9 bytes
// "MMIDIDX\0\0", u64 version 1, u8 dtype code (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16), u64 sequence
// count S, u64 document bound count D; int32 length[S], int64 byte offset[S], int64 bound[D] (0 first, S last: document
// d is sequences bound[d] .. bound[d+1]-1); for multimodal data int8 mode[S]. .bin file: tokens only. Sequences must be
// contiguous and in order, as in all of Megatron's writers.

#include "data/formats/token_layout.h"

namespace quench {

// Block-wise read of the index; 8 bytes of memory per document. Throws corrupt or unsupported, naming the entry, for
// values inconsistent with the two file sizes, before allocating for them.
[[nodiscard]] TokenLayout read_megatron_layout(const BinaryFile& index, const BinaryFile& tokens);

}  // namespace quench
