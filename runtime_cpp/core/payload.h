// The payload of a message: real bytes, or only their number.
//
// A simulation of sizes and times alone uses "phantom" payloads: the protocol treats them like any
// other, and a 100 MB tensor costs nothing. Real bytes are never copied on their way out: a payload
// points into memory that its owner keeps alive, possibly in a few pieces (the rows of a slice are
// one piece per encoded part). Hundreds of thousands of messages may wait at a time, so the object
// itself is small: the list of pieces is allocated separately and shared by copies.
#pragma once

#include <algorithm>
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
    Payload payload;
    payload.size_ = bytes.size();
    payload.content_ = std::make_shared<const Content>(bytes, std::move(owner));
    return payload;
  }
  static Payload View(std::vector<Bytes> pieces, std::shared_ptr<const void> owner) {
    std::erase_if(pieces, [](const Bytes& piece) { return piece.empty(); });
    Payload payload;
    for (const Bytes& piece : pieces) payload.size_ += piece.size();
    payload.content_ = std::make_shared<const Content>(std::move(pieces), std::move(owner));
    return payload;
  }

  // `head`, which `owner` keeps alive, and behind it `tail`. If that is phantom, so is the whole, but
  // its first bytes are there (Start).
  static Payload Behind(Bytes head, std::shared_ptr<const void> owner, const Payload& tail) {
    std::vector<Bytes> pieces = {head};
    pieces.insert(pieces.end(), tail.pieces().begin(), tail.pieces().end());
    Payload payload = View(std::move(pieces), std::make_shared<Owners>(std::move(owner), tail.content_));
    payload.size_ = head.size() + tail.size_;
    payload.phantom_ = tail.phantom_;
    return payload;
  }
  // The bytes from `offset` on; shares their memory.
  Payload From(std::size_t offset) const {
    std::vector<Bytes> rest;
    std::size_t skip = offset;
    for (const Bytes& piece : pieces()) {
      const std::size_t passed = std::min(skip, piece.size());
      skip -= passed;
      rest.push_back(piece.subspan(passed));
    }
    if (phantom_) return Phantom(size_ - offset);
    return View(std::move(rest), content_);
  }
  // All bytes in one piece; of a phantom payload, those at the start that are there.
  Bytes Start(std::vector<std::byte>& scratch) const {
    if (!phantom_) return Contiguous(scratch);
    return content_ ? pieces().front() : Bytes();
  }

  std::size_t size() const { return size_; }
  bool phantom() const { return phantom_; }
  std::span<const Bytes> pieces() const {
    return content_ ? content_->pieces() : std::span<const Bytes>();
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
  struct Content {  // most have one piece, for which no list is allocated
    Content(Bytes piece, std::shared_ptr<const void> its_owner) : one(piece), owner(std::move(its_owner)) {}
    Content(std::vector<Bytes> pieces, std::shared_ptr<const void> its_owner)
        : many(std::move(pieces)), owner(std::move(its_owner)) {}
    std::span<const Bytes> pieces() const {
      if (!many.empty()) return many;
      return {&one, one.empty() ? std::size_t{0} : std::size_t{1}};
    }
    Bytes one;
    std::vector<Bytes> many;
    std::shared_ptr<const void> owner;
  };

  using Owners = std::pair<std::shared_ptr<const void>, std::shared_ptr<const Content>>;

  std::size_t size_ : 63 = 0;
  std::size_t phantom_ : 1 = 0;
  std::shared_ptr<const Content> content_;
};

}  // namespace geomx
