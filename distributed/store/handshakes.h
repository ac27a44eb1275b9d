#pragma once
// Mutual authentication of two processes of a job (messages: protocol.h).
//
// A handshake may take Limits::most. When slots are exhausted, the oldest connection of the address with the most is
// closed: at once for a connection from another address, after Limits::least for one from its own; meanwhile new
// connections stay in the listen backlog.

#include <poll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/store/protocol.h"
#include "distributed/store/socket.h"

namespace quench::distributed {

// Connects and authenticates; `number` is passed to the listener. Lost handshakes are retried with growing delays until
// the deadline; each has at least kHandshakeSeconds. Throws bad_config if either side rejects the secret; failed at
// once for another protocol, else with the last reason.
[[nodiscard]] Socket connect_with_proof(const Endpoint& endpoint, const std::string& secret, std::uint32_t number,
                                        Deadline deadline);

class Handshakes {
 public:
  struct Limits {
    int connections = 256;  // plus one during replacement; at most max(4, a quarter of the open-file limit)
    std::chrono::milliseconds least{1'000};
    std::chrono::milliseconds most{kHandshakeSeconds * 1000};
  };
  struct Proved {
    Socket socket;
    std::string peer;
    std::uint32_t number = 0;
    std::string answer;  // pending reply: the listener's proof
  };
  // Called for connections closed here without authentication, with the reason; empty `peer`: failed accept.
  using Closed = std::function<void(const std::string& peer, std::string_view reason)>;

  Handshakes(std::string secret, Limits limits, Closed closed);

  // For poll(); -1 without a free slot, and for a while after a failed accept.
  [[nodiscard]] int listening(const Socket& listener, Deadline now) const;
  void accept_all(const Socket& listener);
  // For poll(); `handle` takes the same entries.
  void add_descriptors(std::vector<pollfd>& entries) const;
  void handle(const pollfd* entries);
  void expire(Deadline now);
  [[nodiscard]] Deadline next_deadline(Deadline latest);
  // Since the last call.
  [[nodiscard]] std::vector<Proved> take_proved();
  // Connections refused although they knew the job's name, and the latest one's address. Unproved: for messages only.
  struct OtherTokens {
    std::int64_t count = 0;
    std::string latest;
  };
  [[nodiscard]] const OtherTokens& other_tokens() const noexcept { return other_tokens_; }

 private:
  struct Stranger {
    Socket socket;
    std::string peer;
    std::string nonce;
    std::string received;
    std::string unsent;
    Deadline came;
    bool ended = false;
  };
  void receive(Stranger& stranger);
  void judge(Stranger& stranger);
  void send_unsent(Stranger& stranger);
  void end(Stranger& stranger, std::string_view reason);
  void remove_ended();
  // Oldest connection of the address with the most. Requires a nonempty list.
  [[nodiscard]] Stranger& next_to_go();
  void make_place(Deadline now);
  void out_of_descriptors(int error);
  [[nodiscard]] bool is_full() const { return static_cast<int>(strangers_.size()) > limits_.connections; }

  std::string secret_;
  Limits limits_;
  Closed closed_;
  Deadline accept_again_{};
  std::list<Stranger> strangers_;
  std::vector<Proved> proved_;
  OtherTokens other_tokens_;
};

}  // namespace quench::distributed
