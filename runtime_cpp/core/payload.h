// The payload of a message: real bytes, or only their number.
//
// A simulation of sizes and times alone uses "phantom" payloads: the protocol treats them like any
// other, and a 100 MB tensor costs nothing. Real bytes are never copied on their way out: a payload
// points into memory that its owner keeps alive, possibly in a few pieces (the rows of a slice are
// one piece per encoded part). Hundreds of thousands of messages may wait at a time, so the object
// itself is small: the list of pieces is allocated separately and shared by copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace geomx {

using Bytes = std::span<const std::byte>;

class Payload {
 public:
  Payload() = default;

  // `size` bytes whose values do not matter.
  static Payload Phantom(std::size_t size) {
    Payload payload;
    payload.size_ = size;
    payload.phantom_ = 1;
    return payload;
  }

  // A copy of `bytes`, for the small messages of the control plane.
  static Payload Copy(Bytes bytes) {
    auto owned = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    const Bytes copied = *owned;
    return View(copied, std::move(owned));
  }

  // A view of memory that `owner` keeps alive.
  static Payload View(Bytes bytes, std::shared_ptr<const void> owner) {
    return View(std::vector<Bytes>{bytes}, std::move(owner));
  }
  static Payload View(std::vector<Bytes> pieces, std::shared_ptr<const void> owner) {
    std::erase_if(pieces, [](const Bytes& piece) { return piece.empty(); });
    Payload payload;
    for (const Bytes& piece : pieces) payload.size_ += piece.size();
    payload.content_ = std::make_shared<const Content>(std::move(pieces), std::move(owner));
    return payload;
  }

  std::size_t size() const { return size_; }
  bool phantom() const { return phantom_; }
  std::span<const Bytes> pieces() const {
    return content_ ? std::span<const Bytes>(content_->pieces) : std::span<const Bytes>();
  }

  // All bytes in one piece; `scratch` is used only if there are several. REQUIRES: !phantom().
  Bytes Contiguous(std::vector<std::byte>& scratch) const {
    const std::span<const Bytes> pieces = this->pieces();
    if (pieces.empty()) return {};
    if (pieces.size() == 1) return pieces.front();
    scratch.resize(size_);
    std::size_t at = 0;
    for (const Bytes& piece : pieces) {
      std::memcpy(scratch.data() + at, piece.data(), piece.size());
      at += piece.size();
    }
    return scratch;
  }

 private:
  struct Content {
    Content(std::vector<Bytes> its_pieces, std::shared_ptr<const void> its_owner)
        : pieces(std::move(its_pieces)), owner(std::move(its_owner)) {}
    std::vector<Bytes> pieces;
    std::shared_ptr<const void> owner;
  };

  std::size_t size_ : 63 = 0;
  std::size_t phantom_ : 1 = 0;
  std::shared_ptr<const Content> content_;
};

}  // namespace geomx
