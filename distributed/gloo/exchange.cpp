#include "distributed/gloo/exchange.h"

#include <gloo/common/error.h>

#include <algorithm>

namespace quench::distributed {
namespace {

constexpr const char* kSending = "sending to";
constexpr const char* kReceiving = "waiting for";

// Without Gloo's source location and loopback address.
std::string plain_reason(const std::exception& error) {
  std::string text = error.what();
  const std::size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  if (end != std::string::npos) text.erase(0, end + 2);
  const std::size_t address = text.find(" ["), port = text.find("]:", address);
  if (address == std::string::npos || port == std::string::npos) return text;
  return text.erase(address, std::min(text.find_first_not_of("0123456789", port + 2), text.size()) - address);
}

}  // namespace

void Exchange::abort(AbortCause cause, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  if (aborted_.empty()) {
    aborted_ = reason.empty() ? "aborted" : reason;
    cause_ = cause;
  }
  for (gloo::transport::UnboundBuffer* buffer : waiting_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

void Exchange::add(gloo::transport::UnboundBuffer* buffer) {
  const std::scoped_lock lock(mutex_);
  waiting_.insert(buffer);
}

void Exchange::remove(gloo::transport::UnboundBuffer* buffer) {
  const std::scoped_lock lock(mutex_);
  waiting_.erase(buffer);
}

void Exchange::check_not_aborted() {
  const std::scoped_lock lock(mutex_);
  if (!aborted_.empty()) throw_communication_error(cause_, aborted_);
}

Transfers::Transfers(Exchange& exchange, void* bytes, std::size_t count)
    : exchange_(exchange), buffer_(exchange.context_->createUnboundBuffer(bytes, count)) {
  exchange_.add(buffer_.get());
}

Transfers::~Transfers() {
  exchange_.calls_->cancel(this);
  exchange_.remove(buffer_.get());
}

void Transfers::start(const char* what, int peer, std::function<void()> transfer) {
  exchange_.calls_->post(this, [this, what, peer, transfer = std::move(transfer)] {
    try {
      transfer();
    } catch (const std::exception& error) {
      {
        const std::scoped_lock lock(mutex_);
        if (failure_.empty()) failure_ = fmt::format("{} rank {}: {}", what, peer, plain_reason(error));
      }
      buffer_->abortWaitSend();
      buffer_->abortWaitRecv();
    }
  });
}

void Transfers::check_started() {
  const std::scoped_lock lock(mutex_);
  if (!failure_.empty()) throw CommunicationError(failure_);
}

void Transfers::send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return;
  start(kSending, to, [this, to, slot, offset, bytes] { buffer_->send(to, slot, offset, bytes); });
  sends_.push_back(to);
}

void Transfers::receive(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return;
  start(kReceiving, from, [this, from, slot, offset, bytes] { buffer_->recv(from, slot, offset, bytes); });
  receives_.push_back(from);
}

void Transfers::wait(std::vector<int>& peers, Wait wait_one, const char* what) {
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::milliseconds timeout = exchange_.timeout();
  for (std::size_t done = 0; done < peers.size();) {
    exchange_.check_not_aborted();
    check_started();
    try {
      if ((*buffer_.*wait_one)(nullptr, timeout)) ++done;
    } catch (const gloo::Exception& error) {
      exchange_.check_not_aborted();
      std::sort(peers.begin(), peers.end());
      peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
      const std::string ranks = fmt::format("{} rank {}", what, fmt::join(peers, ", "));
      if (std::chrono::steady_clock::now() - begin < timeout)
        throw CommunicationError(fmt::format("{}: {}", ranks, plain_reason(error)));
      throw CollectiveTimeout(fmt::format("{}: nothing within {} s; it hangs, or is too slow", ranks,
                                          static_cast<double>(timeout.count()) / 1000));
    }
  }
  peers.clear();
}

void Transfers::wait_sends() {
  wait(sends_, &gloo::transport::UnboundBuffer::waitSend, kSending);
}

void Transfers::wait_receives() {
  wait(receives_, &gloo::transport::UnboundBuffer::waitRecv, kReceiving);
}

}  // namespace quench::distributed
