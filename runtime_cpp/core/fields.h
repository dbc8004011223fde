// Numbers, texts and arrays as consecutive bytes, little-endian and without padding: the records of
// journals (records.h) and the state of parts (state.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/payload.h"

namespace geomx {

class FieldWriter {
 public:
  template <class Number>
    requires std::is_trivially_copyable_v<Number>
  FieldWriter& Put(const Number& number) {
    return Append(std::as_bytes(std::span(&number, 1)));
  }
  FieldWriter& Text(std::string_view text) {
    Put(static_cast<std::uint32_t>(text.size()));
    return Append(std::as_bytes(std::span(text)));
  }
  FieldWriter& Append(Bytes bytes) {
    body_.insert(body_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Bytes body() const { return body_; }

 private:
  std::vector<std::byte> body_;
};

// Reads the fields that a FieldWriter wrote. Throws `Error`, which takes a text, where they end
// early or hold what no writer writes.
template <class Error>
class FieldReader {
 public:
  explicit FieldReader(Bytes body) : rest_(body) {}

  template <class Number>
    requires std::is_trivially_copyable_v<Number>
  Number Get() {
    if constexpr (std::is_same_v<Number, bool>) {
      const auto byte = Get<std::uint8_t>();
      if (byte > 1) throw Error("a record has " + std::to_string(byte) + " for yes or no");
      return byte == 1;
    } else {
      Number number;
      std::memcpy(&number, Take(sizeof number).data(), sizeof number);
      return number;
    }
  }
  std::string Text() {
    const Bytes bytes = Take(Get<std::uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool empty() const { return rest_.empty(); }
  std::size_t left() const { return rest_.size(); }  // bytes
  void End() const {
    if (!rest_.empty()) throw Error("a record is too long");
  }
  Bytes Take(std::uint64_t count) {
    if (count > rest_.size()) throw Error("a record is too short");
    const Bytes taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  // `count` items of `size` bytes each.
  Bytes TakeMany(std::uint64_t count, std::size_t size) {
    if (count > rest_.size() / size) throw Error("a record is too short");
    return Take(count * size);
  }

 private:
  Bytes rest_;
};

}  // namespace geomx
