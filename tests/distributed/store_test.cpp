#include "distributed/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "core/system/check.h"
#include "distributed/store/server.h"
#include "distributed/store/sha256.h"
#include "tests/testing.h"

namespace quench::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

std::string hex(const Sha256Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

// FIPS 180-4 and RFC 4231 test vectors.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

class StoreTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<Store> connect(const std::string& secret = "secret") const {
    return std::make_unique<Store>(Endpoint{"127.0.0.1", server_.port()}, secret, seconds(5));
  }
  [[nodiscard]] Socket raw() const { return connect_to({"127.0.0.1", server_.port()}, Clock::now() + seconds(5)); }
  // A member's answer to the greeting that comes there.
  static std::string answer_to(const Socket& socket) {
    std::string greeting(kGreetingBytes, '\0'), client_nonce;
    read_all(socket, greeting.data(), greeting.size(), Clock::now() + seconds(5));
    return encode_proof("secret", greeting.substr(kStoreMagic.size()), 0, client_nonce);
  }
  // What the server does with bytes of a stranger: true when it closes the connection.
  static bool closed(const Socket& socket, milliseconds within) {
    try {
      std::string bytes(kGreetingBytes, '\0');
      read_all(socket, bytes.data(), bytes.size(), Clock::now() + within);
      for (std::size_t i = 0; i <= sizeof(Sha256Digest); ++i)  // a refusal, if one comes, and the end
        read_all(socket, bytes.data(), 1, Clock::now() + within);
    } catch (const Error& error) {
      return std::string(error.what()) != "no answer in time";
    }
    return false;
  }

  StoreServer server_{listen_on({"127.0.0.1", 0}), "secret", 8};
};

TEST_F(StoreTest, KeepsValues) {
  const auto store = connect(), other = connect();
  EXPECT_EQ(store->try_get("key"), std::nullopt);
  store->set("key", std::string("a\0b", 3));
  EXPECT_EQ(other->get("key", seconds(1)), std::string("a\0b", 3));
  other->set("key", "");
  EXPECT_EQ(store->try_get("key"), "");
  EXPECT_EQ(store->set_if_absent("key", "later"), "");
  EXPECT_EQ(store->set_if_absent("new", "first"), "first");
  EXPECT_EQ(store->add("count", 3), 3);
  EXPECT_EQ(other->add("count", -5), -2);
  const std::string large(kMaxValueBytes, 'x');
  store->set("large", large);
  EXPECT_EQ(other->get("large", seconds(1)), large);
}

TEST_F(StoreTest, WaitsForOthers) {
  const auto store = connect();
  std::thread writer([&] {
    const auto other = store->connect_again();
    std::this_thread::sleep_for(milliseconds(50));
    other->set("unrelated", "1");
    other->set("awaited", "here");
  });
  EXPECT_EQ(store->get("awaited", seconds(10)), "here");
  writer.join();
  const auto begin = Clock::now();
  EXPECT_EQ(store->wait("never", milliseconds(100)), std::nullopt);
  EXPECT_GE(Clock::now() - begin, milliseconds(100));
  try {
    (void)store->get("never", milliseconds(10));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'never' was not set in the store on 127.0.0.1:"));
  }
}

TEST_F(StoreTest, AWillIsDoneWhenItsConnectionEnds) {
  const auto store = connect();
  {
    const auto node = connect();
    node->set_last_will("gone", "node 1");
  }
  EXPECT_EQ(store->get("gone", seconds(5)), "node 1");
  {
    const auto node = connect();
    node->set_last_will("gone too", "node 2");
    node->set_last_will("gone too", "");
  }
  EXPECT_EQ(store->wait("gone too", milliseconds(100)), std::nullopt);
}

TEST_F(StoreTest, RefusesLongKeysAndValues) {
  const auto store = connect();
  EXPECT_THROW(store->set(std::string(kMaxKeyBytes + 1, 'k'), "v"), Error);
  EXPECT_THROW(store->set("", "v"), Error);
  EXPECT_THROW(store->set("k", std::string(kMaxValueBytes + 1, 'v')), Error);
  store->set("k", "still there");
  EXPECT_EQ(store->try_get("k"), "still there");
}

// Each connection has a second to prove itself, however many come after it.
TEST_F(StoreTest, ABurstOfStrangersEvictsNoUnfinishedHandshake) {
  StoreServer server(listen_on({"127.0.0.1", 0}), "secret", 8, {.connections = 16, .least = seconds(30)});
  const Endpoint endpoint{"127.0.0.1", server.port()};
  const Socket member = connect_to(endpoint, Clock::now() + seconds(5));
  const std::string answer = answer_to(member);
  std::vector<Socket> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(connect_to(endpoint, Clock::now() + seconds(5)));
  write_all(member, answer, Clock::now() + seconds(5));
  std::string proof(sizeof(Sha256Digest), '\0');
  read_all(member, proof.data(), proof.size(), Clock::now() + seconds(5));
  EXPECT_FALSE(decode_refusal(proof).has_value());
}

// Held-open connections of one address give way to those of another at once.
TEST_F(StoreTest, StrangersOfACrowdedAddressGiveWayFirst) {
  StoreServer server(listen_on({"0.0.0.0", 0}), "secret", 8,
                     {.connections = 8, .least = seconds(60), .most = seconds(90)});
  std::vector<Socket> strangers;
  for (int i = 0; i < 8; ++i) strangers.push_back(connect_to({"127.0.0.7", server.port()}, Clock::now() + seconds(5)));
  // The test's own end of a connection has the address that it connects to.
  ASSERT_EQ(local_address(strangers.front()), "127.0.0.1");
  Socket other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 6);
  ASSERT_EQ(::bind(other.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(server.port()));
  ASSERT_EQ(::connect(other.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  write_all(other, answer_to(other), Clock::now() + seconds(5));
  std::string proof(sizeof(Sha256Digest), '\0');
  read_all(other, proof.data(), proof.size(), Clock::now() + seconds(5));
  EXPECT_FALSE(decode_refusal(proof).has_value());
  EXPECT_TRUE(closed(strangers.front(), seconds(5)));
}

// Strangers that stay connected, one address, ten times the places: members come in all the same.
TEST_F(StoreTest, MembersComeInWhileStrangersHoldEveryPlace) {
  StoreServer server(listen_on({"127.0.0.1", 0}), "secret", 8, {.connections = 16, .least = milliseconds(50)});
  const Endpoint endpoint{"127.0.0.1", server.port()};
  std::vector<Socket> strangers;
  for (int i = 0; i < 160; ++i) strangers.push_back(connect_to(endpoint, Clock::now() + seconds(5)));
  Store store(endpoint, "secret", seconds(30));
  store.set("k", "v");
  EXPECT_EQ(store.try_get("k"), "v");
}

// Connections lost in the handshake say nothing about the token.
TEST_F(StoreTest, ALostHandshakeIsTriedAgain) {
  Socket listener = listen_on({"127.0.0.1", 0});
  const Endpoint endpoint{"127.0.0.1", local_port(listener)};
  std::unique_ptr<StoreServer> server;
  std::thread crowded([&] {
    for (int i = 0; i < 3; ++i) {
      pollfd entry{listener.descriptor(), POLLIN, 0};
      ::poll(&entry, 1, 10'000);
      Socket client(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
      if (i == 0) continue;  // closed without a greeting
      write_all(client, std::string(kStoreMagic) + std::string(kNonceBytes, 'n'), Clock::now() + seconds(5));
      std::string answer(kAnswerBytes, '\0');
      if (i == 2) read_all(client, answer.data(), answer.size(), Clock::now() + seconds(5));
    }
    server = std::make_unique<StoreServer>(std::move(listener), "secret", 8);
  });
  EXPECT_NO_THROW(Store(endpoint, "secret", seconds(20)).set("k", "v"));
  crowded.join();
}

TEST_F(StoreTest, RefusesAnotherToken) {
  const auto store = connect();
  try {
    (void)connect("another");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), HasSubstr("belongs to another job or has another token"));
  }
  store->set("k", "v");
}

// Said at once, not at the end of the timeout; and whether the job or the token is another.
TEST_F(StoreTest, ARefusalSaysWhy) {
  const StoreServer server(listen_on({"127.0.0.1", 0}), store_secret("token", "job"), 8);
  const auto refusal = [&](const std::string& secret) {
    const auto begin = Clock::now();
    try {
      (void)Store({"127.0.0.1", server.port()}, secret, seconds(60));
    } catch (const Error& error) {
      EXPECT_LT(Clock::now() - begin, seconds(10));
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(store_secret("other", "job")), HasSubstr("it says: another token"));
  EXPECT_THAT(refusal(store_secret("token", "other")), HasSubstr("it says: another job"));
  Store member({"127.0.0.1", server.port()}, store_secret("token", "job"), seconds(5));
  EXPECT_EQ(member.try_get(kOtherTokensKey),
            "1 connection with this job's name and another token: refused, the latest from 127.0.0.1");
}

TEST_F(StoreTest, AHandshakeIsWorthNothingForAnotherConnection) {
  const Socket first = raw();
  const std::string overheard = answer_to(first);
  write_all(first, overheard, Clock::now() + seconds(5));
  std::string proof(sizeof(Sha256Digest), '\0');
  read_all(first, proof.data(), proof.size(), Clock::now() + seconds(5));  // that one is let in
  const Socket second = raw();
  write_all(second, overheard, Clock::now() + seconds(5));
  EXPECT_TRUE(closed(second, seconds(5)));
}

TEST_F(StoreTest, StrangersDisturbNobody) {
  const auto store = connect();
  const Socket garbage = raw();
  write_all(garbage, "GET / HTTP/1.1\r\nHost: " + std::string(kAnswerBytes, 'a') + "\r\n\r\n",
            Clock::now() + seconds(5));
  EXPECT_TRUE(closed(garbage, seconds(5)));
  std::vector<Socket> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(raw());  // more than are kept
  EXPECT_TRUE(closed(idle.front(), seconds(5)));
  store->set("k", "v");
  EXPECT_EQ(connect()->get("k", seconds(5)), "v");
}

TEST_F(StoreTest, ASilentOrSlowStrangerIsSentAwayInTime) {
  const Socket silent = raw(), half_open = raw();
  Socket slow = raw();
  write_all(silent, "x", Clock::now() + seconds(5));
  ::shutdown(half_open.descriptor(), SHUT_WR);
  EXPECT_TRUE(closed(half_open, seconds(1)));
  // A byte now and then gains no time.
  std::atomic<bool> done{false};
  std::thread dripping([&] {
    while (!done && ::send(slow.descriptor(), "x", 1, MSG_NOSIGNAL) == 1)
      std::this_thread::sleep_for(milliseconds(200));
  });
  EXPECT_TRUE(closed(silent, seconds(2 * kHandshakeSeconds)));
  EXPECT_TRUE(closed(slow, seconds(1)));
  done = true;
  dripping.join();
}

// Resident memory of this process, in bytes: the server's and the test's.
std::int64_t resident_bytes() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

TEST_F(StoreTest, TenThousandStrangersDisturbNobody) {
  const auto member = connect();
  const std::string frame_of_a_gigabyte("\0\0\0\x40", 4);
  std::int64_t before = 0;
  std::vector<Socket> open(200);
  for (int i = 0; i < 10'000; ++i) {
    if (i == 1'000) before = resident_bytes();  // what the first of them took is there to be used again
    Socket& stranger = open[static_cast<std::size_t>(i) % open.size()];
    stranger = raw();
    if (i % 3 == 0) write_all(stranger, frame_of_a_gigabyte + std::string(1000, 'x'), Clock::now() + seconds(5));
    if (i % 500 != 0) continue;
    member->set("k", std::to_string(i));
    EXPECT_EQ(connect()->try_get("k"), std::to_string(i));  // members that come now are let in
  }
  EXPECT_LT(resident_bytes() - before, std::int64_t{16} << 20);
}

TEST_F(StoreTest, AMemberThatBreaksTheFormatIsSentAway) {
  const auto store = connect();
  const Socket socket = raw();
  std::string answer = answer_to(socket);
  write_all(socket, answer, Clock::now() + seconds(5));
  answer.resize(sizeof(Sha256Digest));
  read_all(socket, answer.data(), answer.size(), Clock::now() + seconds(5));
  write_all(socket, std::string("\0\0\0\x40", 4) + "bytes", Clock::now() + seconds(5));  // a frame of 1 GB
  char byte;
  try {
    read_all(socket, &byte, 1, Clock::now() + seconds(5));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "no answer in time");
  }
  store->set("k", "v");
}

TEST_F(StoreTest, HasAPlaceForSoManyConnectionsAndNoMore) {
  std::vector<std::unique_ptr<Store>> stores;
  for (int i = 0; i < 8; ++i) stores.push_back(connect());
  try {
    (void)Store({"127.0.0.1", server_.port()}, "secret", milliseconds(300));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::failed);
    EXPECT_THAT(error.what(), HasSubstr("it has no place for another connection"));
  }
  stores.pop_back();
  stores.front()->set("k", "v");
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(connect()->try_get("k"), "v");
}

TEST_F(StoreTest, ALostServerIsNamed) {
  auto server = std::make_unique<StoreServer>(listen_on({"127.0.0.1", 0}), "secret", 8);
  Store store({"127.0.0.1", server->port()}, "secret", seconds(5));
  server.reset();
  try {
    store.set("k", "v");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the store on 127.0.0.1:"));
  }
}

}  // namespace
}  // namespace quench::distributed
