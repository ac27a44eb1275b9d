#pragma once
// Ranks as threads that communicate over loopback.

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/ranks.h"
#include "distributed/store/server.h"

namespace quench::testing {

// Calls work(saving group) on a thread for each of `count` ranks; passes on what they throw, by rank.
inline std::vector<std::string> on_ranks(int count, const std::function<void(distributed::ProcessGroup&)>& work) {
  const distributed::StoreServer server(distributed::listen_on({"127.0.0.1", 0}),
                                        distributed::store_secret("token", "job"), 64);
  std::vector<std::string> errors(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      try {
        distributed::Environment place;
        place.rank = place.local_rank = rank;
        place.world_size = place.local_world_size = count;
        place.store = fmt::format("127.0.0.1:{}", server.port());
        place.token = "token";
        place.job = "job";
        const auto world = distributed::World::join(place, {});
        work(world->host());
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace quench::testing
