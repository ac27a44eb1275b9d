#pragma once
// Both ends of the proof that two processes belong to the same job; see protocol.h for the messages.
//
// Connections that have proved nothing are strangers', or of processes of the job that have not answered yet. Every one
// of them has Limits::least to prove itself: until then no later connection from the same address takes its place,
// later ones wait in the system's queue. Where all places are taken, the address with the most connections gives way:
// at once for a connection from another address, else with its oldest connection once that has had its time.

#include <poll.h>

#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/store/protocol.h"
#include "distributed/store/socket.h"

namespace quench::distributed {

// Connects and proves that we know the secret; `number` is for the listener. A connection that is lost in the handshake
// is retried, with longer and longer pauses, until the deadline; each handshake has kHandshakeSeconds at least.
// Throws bad_config where the listener refuses the secret and where it does not know it, failed with the last reason
// else.
[[nodiscard]] Socket connect_with_proof(const Endpoint& endpoint, const std::string& secret, std::uint32_t number,
                                        Deadline deadline);

class Handshakes {
 public:
  struct Limits {
    int connections =
        256;  // at a time; one more while it is decided which gives way; a quarter of the open files at most
    std::chrono::milliseconds least{1'000};
    std::chrono::milliseconds most{kHandshakeSeconds * 1000};
  };
  struct Proved {
    Socket socket;
    std::string peer;
    std::uint32_t number = 0;
    std::string answer;  // to be sent: the listener's own proof
  };
  // `closed` hears of connections that are closed without proof, with the reason; with an empty `peer`, why none is
  // taken.
  using Closed = std::function<void(const std::string& peer, std::string_view reason)>;

  Handshakes(std::string secret, Limits limits, Closed closed);

  // The descriptor to poll, -1 while there is no place.
  [[nodiscard]] int listening(const Socket& listener, Deadline now) const;
  void accept_all(const Socket& listener);
  // Appends what is to be polled; `handle` takes the same entries afterwards.
  void add_descriptors(std::vector<pollfd>& entries) const;
  void handle(const pollfd* entries);
  void expire(Deadline now);
  [[nodiscard]] Deadline next_deadline(Deadline latest);
  // Those that have proved themselves since the last call.
  [[nodiscard]] std::vector<Proved> take_proved();
  // Addresses of processes that know the job's name and have another token, since the last call.
  [[nodiscard]] std::vector<std::string> take_other_tokens();

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
  // The oldest connection of the address that has the most; there is one.
  [[nodiscard]] Stranger& next_to_go();
  void make_place(Deadline now);
  void out_of_descriptors(int error);
  [[nodiscard]] bool is_full() const { return static_cast<int>(strangers_.size()) > limits_.connections; }

  std::string secret_;
  Limits limits_;
  Closed closed_;
  Deadline accept_again_{};
  std::list<Stranger> strangers_;  // in the order of their arrival
  std::vector<Proved> proved_;
  std::vector<std::string> other_tokens_;
};

}  // namespace quench::distributed
