#pragma once
// Megatron-LM indexed datasets (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py). The .idx file: 9 bytes
// "MMIDIDX\0\0", u64 version 1, u8 element code (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16), u64 number of
// sequences S, u64 number of document bounds D; then int32 length[S], int64 byte offset[S], int64 bound[D] (0 first, S
// last: document d is sequences bound[d] .. bound[d+1]-1), and for multimodal data int8 mode[S]. The .bin file holds
// the tokens alone. All of Megatron's writers store sequences in order and without gaps; that is required here.

#include "data/formats/token_layout.h"

namespace quench {

// Reads the index in blocks; memory is 8 bytes a document. Throws corrupt or unsupported, naming the entry, for every
// count, length, offset or bound that the sizes of the two files do not allow, before allocating for it.
[[nodiscard]] TokenLayout read_megatron_layout(const BinaryFile& index, const BinaryFile& tokens);

}  // namespace quench
