// Connections of strangers to the port on which a rank waits for the others of its group.

#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>
#include <future>
#include <set>
#include <thread>

#include "distributed/engine.h"
#include "distributed/gloo/peer_listener.h"
#include "distributed/store/server.h"
#include "distributed/store/store.h"

namespace quench::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The ports on which this process listens.
std::set<int> listening_ports() {
  std::set<int> ports;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);
    int listens = 0;
    socklen_t length = sizeof listens;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) continue;
    sockaddr_in address{};
    length = sizeof address;
    ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
    ports.insert(ntohs(address.sin_port));
  }
  ::closedir(folder);
  return ports;
}

// Both ranks of a group live in this process. Rank 0 waits for rank 1; strangers connect to whatever it listens on, and
// one of them speaks.
TEST(Strangers, AtARanksPortChangeNothing) {
  StoreServer server(listen_on({"127.0.0.1", 0}), "secret", 16);
  const Endpoint endpoint{"127.0.0.1", server.port()};
  Store first(endpoint, "secret", seconds(5)), second(endpoint, "secret", seconds(5));
  GroupOptions options;
  options.join_timeout = seconds(60);
  const auto engine = make_engine({}, first, options), other_engine = make_engine({}, second, options);
  const std::set<int> before = listening_ports();
  auto waiting = std::async(std::launch::async, [&] { return engine->make_group({"all", 0, 2}, first, "p/"); });
  std::set<int> ports;
  for (int i = 0; i < 2000 && ports.size() <= before.size(); ++i) {
    std::this_thread::sleep_for(milliseconds(5));
    ports = listening_ports();
  }
  std::vector<Socket> strangers;
  for (const int port : ports) {
    if (before.contains(port)) continue;
    for (const std::string& words : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(500, '\xff')}) {
      strangers.push_back(connect_to({"127.0.0.1", port}, Clock::now() + seconds(5)));
      write_all(strangers.back(), words, Clock::now() + seconds(5));
    }
  }
  EXPECT_GE(strangers.size(), 3u);
  EXPECT_EQ(waiting.wait_for(milliseconds(100)), std::future_status::timeout);
  auto joining = std::async(std::launch::async, [&] { return other_engine->make_group({"all", 1, 2}, second, "p/"); });
  const std::unique_ptr<ProcessGroup> group = waiting.get(), other = joining.get();
  EXPECT_EQ(listening_ports(), before);  // connected ranks listen no more
  const Tensor mine = Tensor::zeros({1000}, DType::f32), theirs = Tensor::zeros({1000}, DType::f32);
  for (int i = 0; i < 1000; ++i) mine.data<float>()[i] = theirs.data<float>()[i] = static_cast<float>(i);
  Work work = group->all_reduce(mine, ReduceOp::sum, "sum");
  other->all_reduce(theirs, ReduceOp::sum, "sum").wait();
  work.wait();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(mine.data<float>()[i], 2.0F * static_cast<float>(i));
}

TEST(Strangers, AnotherGroupsProcessIsNoPeer) {
  PeerListener listener(listen_on({"127.0.0.1", 0}), "secret");
  const Endpoint endpoint{"127.0.0.1", listener.port()};
  EXPECT_THROW((void)connect_with_proof(endpoint, "another", 1, Clock::now() + seconds(5)), Error);
  EXPECT_FALSE(listener.wait(1, milliseconds(50)).has_value());
  const Socket peer = connect_with_proof(endpoint, "secret", 3, Clock::now() + seconds(5));
  EXPECT_FALSE(listener.wait(1, milliseconds(50)).has_value());
  EXPECT_TRUE(listener.wait(3, seconds(5)).has_value());
}

// With Nagle's algorithm at either end, an exchange of two small messages takes 40 ms.
TEST(PeerConnections, NeitherEndDelaysSmallMessages) {
  PeerListener listener(listen_on({"127.0.0.1", 0}), "secret");
  const Socket connected = connect_with_proof({"127.0.0.1", listener.port()}, "secret", 1, Clock::now() + seconds(5));
  const std::optional<Socket> accepted = listener.wait(1, seconds(5));
  ASSERT_TRUE(accepted.has_value());
  for (const Socket* end : {&connected, &*accepted}) {
    int no_delay = 0;
    socklen_t size = sizeof no_delay;
    ASSERT_EQ(::getsockopt(end->descriptor(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
    EXPECT_NE(no_delay, 0) << (end == &connected ? "connected" : "accepted");
  }
}

}  // namespace
}  // namespace quench::distributed
