#include "core/state.h"

#include <algorithm>

#include "core/crc32c.h"

namespace geomx {
namespace {

constexpr std::string_view kStateMagic = "GMXSTAT1";
constexpr std::size_t kHeadBytes = 24;

}  // namespace

std::vector<std::byte> SealState(std::string_view kind, const FieldWriter& fields) {
  FieldWriter body;
  body.Text(kind).Append(fields.body());
  FieldWriter head;
  head.Append(std::as_bytes(std::span(kStateMagic))).Put(std::uint64_t{body.body().size()});
  head.Put(Crc32c(body.body()));
  head.Put(Crc32c(head.body())).Append(body.body());
  return {head.body().begin(), head.body().end()};
}

StateReader UnsealState(std::string_view kind, Bytes sealed) {
  if (sealed.size() < kHeadBytes) throw StateError("it is cut short: " + std::to_string(sealed.size()) + " bytes");
  StateReader head(sealed.first(kHeadBytes));
  if (!std::ranges::equal(head.Take(kStateMagic.size()), std::as_bytes(std::span(kStateMagic)))) {
    throw StateError("it is no state of this version of geomx");
  }
  const auto bytes = head.Get<std::uint64_t>();
  const auto body_crc = head.Get<std::uint32_t>();
  const Bytes body = sealed.subspan(kHeadBytes);
  if (head.Get<std::uint32_t>() != Crc32c(sealed.first(kHeadBytes - sizeof(std::uint32_t)))) {
    throw StateError("it is damaged: the checksum of its head is wrong");
  }
  if (bytes != body.size()) {
    throw StateError("it is cut short: " + std::to_string(body.size()) + " bytes instead of " +
                     std::to_string(bytes));
  }
  if (body_crc != Crc32c(body)) throw StateError("it is damaged: its checksum is wrong");
  StateReader fields(body);
  const std::string found = fields.Text();
  if (found != kind) {
    throw StateError("it is the state of a part '" + found + "', and not of '" + std::string(kind) + "'");
  }
  return fields;
}

}  // namespace geomx
