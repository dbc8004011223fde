// The state of one part of a node as bytes, from which the same part of another process continues.
//
//     0  magic "GMXSTAT1"              8  bytes of the body
//    16  CRC-32C of the body          20  CRC-32C of the 20 bytes before
//    24  body: the kind of the part as a text, then its fields
//
// All numbers are little-endian. The magic counts versions. docs/journal.md lists the fields.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/fields.h"

namespace geomx {

// Bytes are no state, are damaged, or are the state of something else.
class StateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using StateReader = FieldReader<StateError>;

// Returns the bytes of a state whose fields are `fields`; `kind` is what Unseal must be told.
std::vector<std::byte> SealState(std::string_view kind, const FieldWriter& fields);

// Returns the fields in `sealed`, which must outlive them. Throws StateError.
StateReader UnsealState(std::string_view kind, Bytes sealed);

}  // namespace geomx
