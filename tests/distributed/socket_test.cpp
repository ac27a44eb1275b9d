#include "distributed/store/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "core/system/check.h"
#include "distributed/store/node_addresses.h"
#include "distributed/store/server.h"
#include "tests/testing.h"

namespace quench::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// poll(2) would wait for ever on a negative time.
TEST(Deadlines, NeverGiveAnEndlessPoll) {
  for (const int late : {0, 1, 2, 1000}) EXPECT_EQ(poll_timeout(Clock::now() - milliseconds(late)), 0);
  EXPECT_GT(poll_timeout(Clock::now() + milliseconds(900)), 0);
  EXPECT_LE(poll_timeout(Clock::now() + milliseconds(900)), 900);
  EXPECT_EQ(poll_timeout(Clock::now() + std::chrono::hours(5)), 3'600'000);
}

TEST(Endpoints, AreRead) {
  EXPECT_EQ(parse_endpoint("node7", 29400, "--rdzv-endpoint").to_string(), "node7:29400");
  EXPECT_EQ(parse_endpoint("node7:1", 29400, "--rdzv-endpoint").to_string(), "node7:1");
  EXPECT_EQ(parse_endpoint("[::1]:0", 29400, "--rdzv-endpoint").to_string(), "[::1]:0");
  EXPECT_EQ(parse_endpoint("[::1]", 29400, "--rdzv-endpoint").to_string(), "[::1]:29400");
  for (const char* wrong : {"", ":1", "a:", "a:x", "a:70000", "a:-1", "::1", "[::1", "[::1]x"})
    EXPECT_THROW((void)parse_endpoint(wrong, 29400, "--rdzv-endpoint"), Error) << wrong;
}

TEST(Ports, ABusyOneNamesItsOwner) {
  const Socket first = listen_on({"127.0.0.1", 0});
  try {
    (void)listen_on({"127.0.0.1", local_port(first)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("cannot listen on 127.0.0.1:{}", local_port(first))));
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("by process {} (", ::getpid())));
  }
  EXPECT_EQ(local_address(first), "127.0.0.1");
}

TEST(Ports, AnUnknownHostIsNamed) {
  try {
    (void)listen_on({"no-such-host.invalid", 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), HasSubstr("host 'no-such-host.invalid' is unknown"));
  }
  EXPECT_TRUE(is_this_machine("127.0.0.1"));
  EXPECT_TRUE(is_this_machine(host_name()));
  EXPECT_FALSE(is_this_machine("192.0.2.1"));
}

TEST(NodeAddresses, NamesOfThisMachineListenOnAllAddresses) {
  EXPECT_EQ(listening_place({host_name(), 7}).port, 7);
  EXPECT_THAT(listening_place({host_name(), 7}).host, ::testing::AnyOf("0.0.0.0", "::"));
  for (const char* host : {"localhost", "127.0.0.1", "127.0.1.1", "::1", "192.0.2.1", "no-such-host.invalid"})
    EXPECT_EQ(listening_place({host, 7}).host, host);
  for (const char* host : {"192.0.2.1", "::2", "localhost.example", "node127.0"}) EXPECT_FALSE(is_loopback(host));
}

// Nodes that meet at a loopback address are all here; those that meet at a name may be elsewhere.
TEST(NodeAddresses, AreReachableFromOutsideWhereTheNameOfTheStoreIsLoopback) {
  const StoreServer server(listen_on({"0.0.0.0", 0}), "secret", 8);
  EXPECT_EQ(address_for_nodes(Store({"127.0.0.1", server.port()}, "secret", seconds(5))), "127.0.0.1");
  EXPECT_EQ(address_for_nodes(Store({"localhost", server.port()}, "secret", seconds(5))), "127.0.0.1");
  const std::vector<std::string> own = own_addresses();
  const bool is_alone = std::all_of(own.begin(), own.end(), is_loopback);
  if (addresses_of(host_name()).empty() || is_alone) GTEST_SKIP() << "a machine without a name or a network";
  const std::string address = address_for_nodes(Store({host_name(), server.port()}, "secret", seconds(5)));
  EXPECT_FALSE(is_loopback(address)) << address;
  EXPECT_NE(std::find(own.begin(), own.end(), address), own.end()) << address;
}

TEST(Ports, AnUnreachableEndpointFailsInTime) {
  const int port = [] {
    const Socket socket = listen_on({"127.0.0.1", 0});
    return local_port(socket);
  }();
  const auto begin = Clock::now();
  EXPECT_THROW((void)connect_to({"127.0.0.1", port}, Clock::now() + milliseconds(200)), Error);
  EXPECT_LT(Clock::now() - begin, seconds(3));
}

}  // namespace
}  // namespace quench::distributed
