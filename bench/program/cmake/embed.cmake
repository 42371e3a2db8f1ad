# cmake -DINPUT=… -DSYMBOL=… -DOUTPUT=… -P embed.cmake: writes OUTPUT.cpp, which holds the bytes of INPUT.
file(READ ${INPUT} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT}.cpp "#include \"embedded/${SYMBOL}.hpp\"
namespace gradwire::program::embedded {
namespace {
unsigned char const bytes[${size} + 1] = {
${bytes}0};
}
std::string_view ${SYMBOL}() noexcept { return {reinterpret_cast<char const*>(bytes), ${size}}; }
}
")
