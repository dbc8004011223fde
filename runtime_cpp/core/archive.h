// Writes the state of a node's parts, or reads it: one function of each part (Exchange) does both, so
// that they cannot differ.
//
// A snapshot of a node (recorded_node.h) is what its parts write. Another process builds the node from
// the same experiment, and its parts read what these have written; the node then behaves like the
// saved one. Memory that several messages share is written once. What is written goes to a sink in
// pieces, so that no second copy of the state is needed. docs/journal.md says what is in there.
#pragma once

#include <bit>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/flat_map.h"
#include "core/message.h"
#include "core/state.h"
#include "kernels/device.h"

namespace geomx {

class Archive {
 public:
  using Sink = std::function<void(Bytes)>;

  // Writes to `sink`.
  explicit Archive(Sink sink) : sink_(std::move(sink)) {}
  // Reads `saved`, which outlives this.
  explicit Archive(Bytes saved) : in_(saved), loading_(true) {}

  bool loading() const { return loading_; }

  // Writes or reads values, in order. Throws StateError if bytes that are read cannot be such values.
  template <class... Values>
  Archive& operator()(Values&... values) {
    (One(values), ...);
    return *this;
  }

  // A text that must be the same: a name of what follows.
  void Name(std::string_view name);
  // A part keeps state that it cannot write. Throws StateError, which says so of `part`.
  [[noreturn]] static void CannotTell(const std::string& part);
  // Throws StateError unless everything was read.
  void End() const { in_.End(); }

  // `count` numbers. Memory for them is taken only if they are there.
  void Words(std::unique_ptr<std::uint64_t[]>& words, std::size_t count);

  // The entries of a map, in the order of insertion; new values are made from `arguments`.
  template <class Key, class Value, class Hash, class... Arguments>
  void Entries(FlatMap<Key, Value, Hash>& map, const Arguments&... arguments) {
    const std::uint64_t count = Count(map.size());
    if (!loading_) {
      for (auto& [key, value] : map) {
        Key copy = key;
        (*this)(copy, value);
      }
      return;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      Key key{};
      One(key);
      One(*map.TryEmplace(key, arguments...).first);
    }
  }

 private:
  template <class Value>
  static constexpr bool kPlain = std::is_arithmetic_v<Value> || std::is_enum_v<Value>;

  // Writes or reads the length of a container, whose items take at least a byte each.
  std::uint64_t Count(std::uint64_t count);
  void Write(Bytes bytes) { sink_(bytes); }

  template <class Value>
  void One(Value& value) {
    if constexpr (requires { value.Exchange(*this); }) {
      value.Exchange(*this);
    } else {
      static_assert(kPlain<Value>);
      if (loading_) {
        value = in_.Get<Value>();
      } else {
        Write(std::as_bytes(std::span(&value, 1)));
      }
    }
  }
  void One(std::string& text);
  void One(kernels::Resident& values);
  void One(Header& header);
  void One(ShardInfo& shard);
  void One(Message& message) { (*this)(message.header, message.payload, message.frames); }
  void One(Payload& payload);
  void One(Traffic& traffic) { (*this)(traffic.bytes, traffic.messages); }
  void One(std::shared_ptr<const Buffer>& value);
  void One(std::shared_ptr<Buffer>& value);

  template <class Item, class Memory>
  void One(std::vector<Item, Memory>& items) {
    const std::uint64_t count = Count(items.size());
    if constexpr (std::is_same_v<Item, bool>) {
      if (loading_) items.assign(count, false);
      for (std::uint64_t i = 0; i < count; ++i) {
        bool item = items[i];
        One(item);
        items[i] = item;
      }
    } else if constexpr (kPlain<Item>) {
      if (!loading_) return Write(std::as_bytes(std::span(items)));
      const Bytes bytes = in_.TakeMany(count, sizeof(Item));
      items.resize(count);
      if (count > 0) std::memcpy(items.data(), bytes.data(), bytes.size());
    } else {
      Sequence(items, count);
    }
  }
  template <class Item>
  void One(std::deque<Item>& items) { Sequence(items, Count(items.size())); }
  template <class Item>
  void One(std::list<Item>& items) { Sequence(items, Count(items.size())); }

  template <class Items>
  void Sequence(Items& items, std::uint64_t count) {
    if (!loading_) {
      for (auto& item : items) One(item);
      return;
    }
    items.clear();
    for (std::uint64_t i = 0; i < count; ++i) One(items.emplace_back());
  }

  template <class Item>
  void One(std::set<Item>& items) {
    const std::uint64_t count = Count(items.size());
    if (!loading_) {
      for (Item item : items) One(item);
      return;
    }
    items.clear();
    for (std::uint64_t i = 0; i < count; ++i) {
      Item item{};
      One(item);
      items.insert(std::move(item));
    }
  }
  template <class Key, class Value>
  void One(std::map<Key, Value>& items) {
    const std::uint64_t count = Count(items.size());
    if (!loading_) {
      for (auto& [key, value] : items) {
        Key copy = key;
        (*this)(copy, value);
      }
      return;
    }
    items.clear();
    for (std::uint64_t i = 0; i < count; ++i) {
      Key key{};
      One(key);
      One(items[key]);
    }
  }
  template <class First, class Second>
  void One(std::pair<First, Second>& pair) { (*this)(pair.first, pair.second); }
  template <class... Items>
  void One(std::tuple<Items...>& items) {
    std::apply([this](auto&... each) { (*this)(each...); }, items);
  }
  template <class Item>
  void One(std::optional<Item>& item) {
    bool there = item.has_value();
    One(there);
    if (loading_) item = there ? std::optional<Item>(Item{}) : std::nullopt;
    if (there) One(*item);
  }

  Sink sink_;
  StateReader in_{Bytes{}};
  bool loading_ = false;
  // What was written or read already, by number; and the numbers of what was written, by its place.
  std::vector<Payload> payloads_;
  std::vector<std::shared_ptr<Buffer>> values_;
  std::map<std::vector<std::pair<const void*, std::size_t>>, std::uint64_t> written_payloads_;
  std::map<const void*, std::uint64_t> written_values_;
};

}  // namespace geomx
