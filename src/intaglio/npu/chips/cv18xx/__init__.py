"""CV181x and CV180x of Sophgo: command words, cvimodel files, disassembler and simulator."""
