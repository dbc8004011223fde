#include "core/archive.h"

namespace geomx {

void Archive::CannotTell(const std::string& part) {
  throw StateError(part + " keeps state that it cannot write");
}

void Archive::Name(std::string_view name) {
  std::string text(name);
  One(text);
  if (text != name) {
    throw StateError("it is the state of '" + text + "', and not of '" + std::string(name) + "'");
  }
}

std::uint64_t Archive::Count(std::uint64_t count) {
  One(count);
  if (loading_ && count > in_.left()) throw StateError("a list is longer than all that is left");
  return count;
}

void Archive::Words(std::unique_ptr<std::uint64_t[]>& words, std::size_t count) {
  if (!loading_) return Write(std::as_bytes(std::span(words.get(), count)));
  const Bytes bytes = in_.TakeMany(count, sizeof(std::uint64_t));
  words = std::make_unique<std::uint64_t[]>(count);
  std::memcpy(words.get(), bytes.data(), bytes.size());
}

void Archive::One(std::string& text) {
  const std::uint64_t count = Count(text.size());
  if (!loading_) return Write(std::as_bytes(std::span(text)));
  const Bytes bytes = in_.Take(count);
  text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void Archive::One(kernels::Resident& values) {
  std::vector<std::byte> bytes;
  if (!loading_) bytes = values.Fetch();
  One(bytes);
  if (!loading_) return;
  values = {};
  if (!bytes.empty()) std::memcpy(values.At<std::byte>(kernels::Host(), bytes.size()), bytes.data(), bytes.size());
}

void Archive::One(Header& header) {
  (*this)(header.kind, header.channel, header.flags, header.source, header.key, header.shard,
          header.round, header.merge_count, header.priority, header.shard_elements,
          header.total_rows, header.first_row, header.rows, header.slice, header.slices,
          header.reliable, header.server, header.steps, header.offset, header.loss, header.payload_bytes);
}

void Archive::One(ShardInfo& shard) {
  (*this)(shard.key, shard.index, shard.offset, shard.elements, shard.server, shard.priority, shard.name);
}

// Messages to several peers share the memory of their payload, which stays where it is while a state
// is written.
void Archive::One(Payload& payload) {
  std::uint64_t size = payload.size();
  bool phantom = payload.phantom();
  (*this)(size, phantom);
  if (phantom || size == 0) {
    if (loading_) payload = phantom ? Payload::Phantom(size) : Payload();
    return;
  }
  if (loading_) {
    const auto number = in_.Get<std::uint64_t>();
    if (number > payloads_.size()) throw StateError("a payload that is not there");
    if (number == payloads_.size()) payloads_.push_back(Payload::Copy(in_.Take(size)));
    payload = payloads_[number];
    if (payload.size() != size) throw StateError("a payload of another size");
    return;
  }
  std::vector<std::pair<const void*, std::size_t>> where;
  for (const Bytes& piece : payload.pieces()) where.emplace_back(piece.data(), piece.size());
  const auto [known, fresh] = written_payloads_.try_emplace(std::move(where), payloads_.size());
  std::uint64_t number = known->second;
  One(number);
  if (!fresh) return;
  payloads_.push_back(payload);  // keeps the memory, and so its address, until the end
  for (const Bytes& piece : payload.pieces()) Write(piece);
}

void Archive::One(std::shared_ptr<Buffer>& value) {
  std::uint64_t number = 0;  // of a value, from 1; 0: none
  if (loading_) {
    One(number);
    if (number > values_.size() + 1) throw StateError("a value that is not there");
    if (number == values_.size() + 1) One(*values_.emplace_back(std::make_shared<Buffer>()));
    value = number == 0 ? nullptr : values_[number - 1];
    return;
  }
  bool fresh = false;
  if (value) {
    const auto [known, first] = written_values_.try_emplace(value.get(), values_.size() + 1);
    number = known->second;
    fresh = first;
  }
  One(number);
  if (fresh) One(*values_.emplace_back(value));
}

void Archive::One(std::shared_ptr<const Buffer>& value) {
  auto same = std::const_pointer_cast<Buffer>(value);
  One(same);
  value = std::move(same);
}

}  // namespace geomx
