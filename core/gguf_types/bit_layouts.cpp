#include "core/gguf_types/bit_layouts.h"

#include <algorithm>

namespace quench {

void put_quarters(const std::uint8_t* codes, std::uint8_t* out) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 32; ++i) {
      const std::uint8_t* c = codes + half * 128 + i;
      out[half * 32 + i] = static_cast<std::uint8_t>(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
    }
}

void get_quarters(const std::uint8_t* in, std::int8_t* codes) {
  for (int half = 0; half < 2; ++half)
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int i = 0; i < 32; ++i)
        codes[half * 128 + quarter * 32 + i] = static_cast<std::int8_t>(in[half * 32 + i] >> (2 * quarter) & 3);
}

void put_planes(const std::uint8_t* bits, std::uint8_t* out) {
  std::fill(out, out + 32, std::uint8_t{0});
  for (int i = 0; i < kSuperBlock; ++i) out[i % 32] = static_cast<std::uint8_t>(out[i % 32] | bits[i] << (i / 32));
}

}  // namespace quench
