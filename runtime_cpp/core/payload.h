// What a message carries: real bytes, or only their number.
//
// A simulated run that asks for sizes and times alone moves "phantom" payloads: the protocol treats
// them like any other, a 100 MB tensor costs nothing. Real bytes are never copied on their way out:
// a payload points into memory that its owner keeps alive, possibly in a few pieces (the rows of a
// slice lie in one piece per encoded part).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace geomx {

using Bytes = std::span<const std::byte>;

class Payload {
 public:
  Payload() = default;

  // `size` bytes that nobody will look at.
  static Payload Phantom(std::size_t size) {
    Payload payload;
    payload.size_ = size;
    payload.phantom_ = true;
    return payload;
  }

  // A copy of `bytes`, for the small messages of the control plane.
  static Payload Copy(Bytes bytes) {
    auto owned = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    Payload payload;
    payload.Append(*owned);
    payload.owner_ = std::move(owned);
    return payload;
  }

  // A view of memory that `owner` keeps alive.
  static Payload View(Bytes bytes, std::shared_ptr<const void> owner) {
    Payload payload;
    payload.Append(bytes);
    payload.owner_ = std::move(owner);
    return payload;
  }

  void Append(Bytes bytes) {
    if (bytes.empty()) return;
    pieces_.push_back(bytes);
    size_ += bytes.size();
  }
  void set_owner(std::shared_ptr<const void> owner) { owner_ = std::move(owner); }

  std::size_t size() const { return size_; }
  bool phantom() const { return phantom_; }
  const std::vector<Bytes>& pieces() const { return pieces_; }

  // All bytes in one piece; `scratch` is used only if there are several. REQUIRES: !phantom().
  Bytes Contiguous(std::vector<std::byte>& scratch) const {
    if (pieces_.empty()) return {};
    if (pieces_.size() == 1) return pieces_.front();
    scratch.resize(size_);
    std::size_t at = 0;
    for (const Bytes& piece : pieces_) {
      std::memcpy(scratch.data() + at, piece.data(), piece.size());
      at += piece.size();
    }
    return scratch;
  }

 private:
  std::size_t size_ = 0;
  bool phantom_ = false;
  std::vector<Bytes> pieces_;
  std::shared_ptr<const void> owner_;
};

}  // namespace geomx
