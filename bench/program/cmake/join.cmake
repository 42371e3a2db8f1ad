# cmake -DINPUTS=a|b|… -DOUTPUT=… -P join.cmake: the files one behind the other, a form feed between two.
string(REPLACE "|" ";" inputs "${INPUTS}")
set(separator "")
file(WRITE ${OUTPUT} "")
foreach(input IN LISTS inputs)
  file(READ ${input} text)
  file(APPEND ${OUTPUT} "${separator}${text}")
  string(ASCII 12 separator)
endforeach()
