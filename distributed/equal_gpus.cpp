#include "distributed/equal_gpus.h"

#include <string>
#include <vector>

#include "distributed/ranks.h"

namespace quench::distributed {

void require_equal_gpus(ProcessGroup& host, const RankGpu& mine) {
  std::vector<RankGpu> gpus;
  for (const std::string& text : exchange_texts(host, encode(mine), "GPUs")) gpus.push_back(decode_gpu(text));
  require_equal_capabilities(gpus);
}

}  // namespace quench::distributed
